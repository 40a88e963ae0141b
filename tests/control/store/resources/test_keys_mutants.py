"""Broken copies of the modules that check keys, tokens and credentials: their tests must notice each."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from stoker.control.nodes import joining
from stoker.control.store.resources import keys
from tests.mutants import load, mutant

FOLDER = Path(__file__).parent
CONFTEST = FOLDER.parent / "conftest.py"

KEYS = {
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
        "access = Access.parse(row.access)\n    highest",
        "access = ALL\n    highest",
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

JOINING = {
    "another node's credential will do": ("known.credential == brought.id or", "True or"),
    "an unused one of another node will do": ("brought.node == node and not known.used", "not known.used"),
    "one that was not used is good for ever": ("not known.used and known.revoked_at is None", "True"),
    "it is good once the node was turned out": (" and known.revoked_at is None\n\n", "\n\n"),
    "another token takes an id": (
        "if known.join_key == brought.id and not known.used:",
        "if not known.used:",
    ),
    "the join token goes on": (
        "known.join_key == brought.id and not known.used:",
        "known.join_key == brought.id:",
    ),
    "an old token lets in who was turned out": ("brought.created_at <= known.revoked_at", "False"),
    "an expired token lets in": ("brought.expires_at <= now", "brought.expires_at < 0"),
    "a spent token lets in": ("brought.uses_left == 0", "brought.uses_left == -1"),
    "uses are not counted": ("uses_left=key_rows.c.uses_left - 1", "uses_left=key_rows.c.uses_left"),
    "the lost credential stays good": ("    _forget_unused(conn, node, but=brought.id)\n", ""),
    "a full disk gets more and more": (
        "        _forget_unused(conn, node, newest=UNUSED_MOST - 1)\n",
        "        pass\n",
    ),
    "who was turned out kept one": ("        _forget_unused(conn, node)\n", "        pass\n"),
    "the one that came does not speak": (
        ".values(credential=brought.id)",
        ".values(credential=nodes.c.credential)",
    ),
    "a credential is never used": (
        "    note_use(conn, {brought.id: now})\n    _forget_unused(",
        "    _forget_unused(",
    ),
    "any credential speaks": ("bool(row.id == known.credential)", "True"),
    "what was revoked is forgotten": ("key_rows.c.revoked_at.is_(None), ", ""),
    "nobody is turned out": ("keys.revoked_at IS NOT NULL", "keys.revoked_at = 0.0"),
}

MUTANTS = [(keys, "keys", *pair) for pair in KEYS.items()]
MUTANTS += [(joining, "joining", *pair) for pair in JOINING.items()]
BENCHES = load("benches", CONFTEST, CONFTEST.read_text())


def survives(module: ModuleType, name: str) -> bool:
    """Whether every test of `test_{name}.py` that takes at most a bench passes with `module` in its place."""
    path = FOLDER / f"test_{name}.py"
    tests = load(f"tests_of_{name}", path, path.read_text())
    setattr(tests, name, module)
    for test in [value for key, value in vars(tests).items() if key.startswith("test_")]:
        fixtures = test.__annotations__.keys() - {"return"}
        if not fixtures <= {"bench"}:
            continue
        bench = BENCHES.Bench(BENCHES.memory_store())
        try:
            test(*[bench for _ in fixtures])
        except (Exception, pytest.fail.Exception):
            return False
        finally:
            bench.store.close()
    return True


@pytest.mark.parametrize(
    ("module", "name", "old", "new"),
    [pytest.param(module, name, *pair, id=mistake) for module, name, mistake, pair in MUTANTS],
)
def test_a_mutant_is_killed(module: ModuleType, name: str, old: str, new: str) -> None:
    assert not survives(mutant(module, old, new), name)


@pytest.mark.parametrize(("module", "name"), [(keys, "keys"), (joining, "joining")])
def test_the_original_lives(module: ModuleType, name: str) -> None:
    assert survives(module, name)
