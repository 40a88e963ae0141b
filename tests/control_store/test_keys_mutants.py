"""Broken copies of what recognises keys and tokens: each is a mistake that the tests of them must see."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from mutants import load, mutant

from stoker.control import keys
from stoker.control.store import open_store

FOLDER = Path(__file__).parent

MUTANTS = {
    "a revoked key opens": (
        "keys.c.kind == kind, keys.c.revoked_at.is_(None))",
        "keys.c.kind == kind)",
    ),
    "a join token is a key": (
        "keys.c.id == key, keys.c.kind == kind, keys.c.revoked_at",
        "keys.c.id == key, keys.c.revoked_at",
    ),
    "no secret is asked": (
        "if row is None or not hmac.compare_digest(row.hash, _hash(secret))",
        "if row is None",
    ),
    "a key never ends": ("row is None or _expired(row, now)", "row is None"),
    "a moment too long": ("row.expires_at <= now", "row.expires_at < now"),
    "rights are forgotten": (
        "Caller(row.account, row.id, Access.parse(row.access))",
        "Caller(row.account, row.id, ALL)",
    ),
    "uses are not counted": ("uses_left=keys.c.uses_left - 1", "uses_left=keys.c.uses_left"),
    "a spent token opens": ("if row.uses_left == 0", "if row.uses_left == -1"),
    "coming back spends": ("if row.id != _join_key(conn, node):\n        spent", "if row:\n        spent"),
    "the node forgets its token": ("join_key=row.id, account", 'join_key="", account'),
    "coming back is refused": (
        "if row.id == _join_key(conn, node):\n        return None",
        "if False:\n        return None",
    ),
    "an expired token lets in": (
        '        return f"join token {row.id} has expired: {another}"',
        "        return None",
    ),
    "another account's key is changed": (
        "changed = update(keys).where(keys.c.id == key, keys.c.account == account,",
        "changed = update(keys).where(keys.c.id == key,",
    ),
    "another account's key is told": (
        "found = select(keys).where(keys.c.id == key, keys.c.account == account,",
        "found = select(keys).where(keys.c.id == key,",
    ),
}


BENCHES = load("benches", FOLDER / "conftest.py", (FOLDER / "conftest.py").read_text())


def survives(module: ModuleType) -> bool:
    """Whether every test that takes nothing but a bench passes with the given module in its place."""
    path = FOLDER / "test_keys.py"
    found = load("tests_of_keys", path, path.read_text())
    found.keys = module  # type: ignore[attr-defined]
    for word, test in vars(found).items():
        if word.startswith("test_") and set(test.__annotations__) == {"bench", "return"}:
            bench = BENCHES.Bench(open_store(":memory:"))
            try:
                test(bench)
            except (Exception, pytest.fail.Exception):
                return False
            finally:
                bench.store.close()
    return True


@pytest.mark.parametrize(("old", "new"), [pytest.param(*pair, id=words) for words, pair in MUTANTS.items()])
def test_a_mutant_is_killed(old: str, new: str) -> None:
    assert not survives(mutant(keys, old, new))


def test_the_original_lives() -> None:
    assert survives(keys)
