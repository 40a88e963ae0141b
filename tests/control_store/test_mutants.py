"""Broken copies of the job machine, each of which the tests of test_job.py must notice."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from mutants import load, mutant

from stoker.control import job as machine

MUTANTS = {
    "a fourth attempt": ("MAX_ATTEMPTS = 3", "MAX_ATTEMPTS = 4"),
    "no wait between attempts": ("BACKOFF_S = (0.0, 2.0, 10.0)", "BACKOFF_S = (0.0, 0.0, 0.0)"),
    "an agent may be killed for ever": ("MAX_GIVEN = 10", "MAX_GIVEN = 1000"),
    "no outcome from the queue": (
        '"end": Move(frozenset({_P, _Q}), _ENDS',
        '"end": Move(frozenset({_P}), _ENDS',
    ),
    "a running job is claimed": ('"claim": Move(frozenset({_Q})', '"claim": Move(frozenset({_Q, _P})'),
    "an ended job is cancelled": (
        '"cancel": Move(frozenset({_P, _Q})',
        '"cancel": Move(frozenset({_P, _Q}) | _ENDS',
    ),
    "any node may end it": ("holder(job) == node is not None and attempt", "attempt"),
    "any attempt may end it": (" and attempt in (None, job.attempt))", ")"),
    "back-off is ignored": ("job.state.not_before > event.at", "False"),
    "expired jobs are claimed": ('_may(job, "claim") or event.at >= job.expires_at', '_may(job, "claim")'),
    "jobs expire early": ('_may(job, "expire") or at < job.expires_at', '_may(job, "expire")'),
    "a claim does not raise the attempt": ("number = job.attempt + 1", "number = job.attempt"),
    "lost nodes never count": ("failures = job.failures + job.state.suspect\n", "failures = job.failures\n"),
    "losing a node closes the attempt": ("suspect=event.node)", "suspect=None)"),
    "a drop keeps the attempt open": (
        "after_drop(event.node, given, event.at), event.at)",
        "after_drop(event.node, given, event.at), event.at, suspect=event.node)",
    ),
    "refusals count": ("replace(job, refused=job.refused + 1)", "replace(job, failures=job.failures + 1)"),
    "refusals show": ("max(attempt - refused - 1, 0)", "max(attempt - 1, 0)"),
    "every error is tried again": (
        'end == "lost" or (end == "failed" and retryable)',
        'end in ("lost", "failed")',
    ),
    "the end lengthens the ttl": ("min(job.expires_at, at + retention", "max(job.expires_at, at + retention"),
    "sync results stay long": (
        "RETENTION_SYNC_S if sync else RETENTION_S",
        "RETENTION_S if sync else RETENTION_S",
    ),
    "cancel stops nobody": ('(*_stop(job, "cancelled"), *published)', "published"),
    "expiry stops nobody": ('(*_stop(job, "expired"), Publish(None))', "(Publish(None),)"),
    "giving up is not said": ('f"{why}; gave up after {counted} attempts"', "why"),
}


def _survives() -> bool:
    path = Path(__file__).with_name("test_job.py")
    tests = load(
        "tests_of_a_mutant",
        path,
        path.read_text(encoding="utf-8").replace(
            "from stoker.control import job as machine", "import sys; machine = sys.modules['mutant']"
        ),
    )
    checks = [value for name, value in vars(tests).items() if name.startswith("test_")]
    try:
        for check in checks:
            check()
    except Exception:
        return False
    return True


def _run(module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setitem(sys.modules, "mutant", module)
    return _survives()


def test_the_machine_itself_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(machine, monkeypatch)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_killed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _run(mutant(machine, *MUTANTS[name]), monkeypatch)
