"""Broken copies of the job machine and its retries, which the tests of test_job_machine.py must notice."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from stoker.control.rules import job_states
from stoker.control.rules import retries as policy
from tests.control import job_machine
from tests.mutants import examples_last, first_failure, load, mutant

MUTANTS = {
    "a fourth attempt": ("MAX_ATTEMPTS = 3", "MAX_ATTEMPTS = 4"),
    "no wait between attempts": ("BACKOFF_S = (0.0, 2.0, 10.0)", "BACKOFF_S = (0.0, 0.0, 0.0)"),
    "the last wait does not repeat": (
        "BACKOFF_S[min(counted, len(BACKOFF_S)) - 1]",
        "BACKOFF_S[counted % 3 - 1]",
    ),
    "an agent may be killed for ever": ("MAX_ASSIGNMENTS = 10", "MAX_ASSIGNMENTS = 1000"),
    "no outcome from the queue": (
        '"end": Move(frozenset({_P, _Q}), TERMINAL',
        '"end": Move(frozenset({_P}), TERMINAL',
    ),
    "a running job is claimed": ('"claim": Move(frozenset({_Q})', '"claim": Move(frozenset({_Q, _P})'),
    "an ended job is cancelled": (
        '"cancel": Move(frozenset({_P, _Q})',
        '"cancel": Move(frozenset({_P, _Q}) | TERMINAL',
    ),
    "any node may end it": ("holder(job) == node is not None and attempt", "attempt"),
    "any attempt may end it": (" and attempt in (None, job.attempt))", ")"),
    "back-off is ignored": ("job.state.not_before > event.at", "False"),
    "expired jobs are claimed": ('_may(job, "claim") or event.at >= job.expires_at', '_may(job, "claim")'),
    "jobs expire early": ('_may(job, "expire") or at < job.expires_at', '_may(job, "expire")'),
    "a claim does not raise the attempt": ("number = job.attempt + 1", "number = job.attempt"),
    "lost nodes never count": ("failures = job.failures + job.state.suspect\n", "failures = job.failures\n"),
    "what lay ahead of a lost node counts": ("suspect=not event.ahead)", "suspect=True)"),
    "losing a node closes the attempt": ("lost=event.node,", "lost=None,"),
    "a drop keeps the attempt open": (
        "after_drop(event.node, job.assigned, event.at), event.at)",
        "after_drop(event.node, job.assigned, event.at), event.at, lost=event.node)",
    ),
    "refusals count": ("refused=job.refused + 1, backoffs", "failures=job.failures + 1, backoffs"),
    "what is handed back waits longer": ("(not event.at_once)", "1"),
    "no refusal waits longer": ("(not event.at_once)", "0"),
    "a retry keeps the back-off": ("        backoffs=0,\n", ""),
    "refusals show": ("max(attempt - refused - 1, 0)", "max(attempt - 1, 0)"),
    "every error is tried again": ('if end == "failed" and not retryable:', "if False:"),
    "no error is tried again": ('if end == "failed" and not retryable:', 'if end == "failed":'),
    "one try too many of a handler": (
        "counted <= counts.handler_retries",
        "counted <= counts.handler_retries + 1",
    ),
    "a handler's failures are the platform's": (
        "replace(counts, handler_failures=counted)",
        "replace(counts, failures=counted)",
    ),
    "every job has three attempts": ("if counted < counts.max_attempts:", "if counted < MAX_ATTEMPTS:"),
    "lost nodes do not ask for the bound": (
        "counted >= counts.max_attempts:",
        "counted >= MAX_ATTEMPTS + 7:",
    ),
    "the end lengthens the ttl": ("min(self.ttl_at, at + self", "max(self.ttl_at, at + self"),
    "retention is the same for all": ("at + self.retention_s)", "at + RETENTION_S)"),
    "a completed job is tried again": (
        '"reopen": Move(frozenset({JobState.FAILED, JobState.TIMED_OUT})',
        '"reopen": Move(frozenset({JobState.FAILED, JobState.TIMED_OUT, JobState.COMPLETED})',
    ),
    "a timed out job is not": (
        '"reopen": Move(frozenset({JobState.FAILED, JobState.TIMED_OUT})',
        '"reopen": Move(frozenset({JobState.FAILED})',
    ),
    "a retry keeps the counts": ("        failures=0,\n", "        failures=job.failures,\n"),
    "a retry keeps the handler's counts": ("        handler_failures=0,\n", ""),
    "a retry gives out no more": (
        "        assigned_before=job.attempt - job.refused,\n",
        "        assigned_before=job.assigned_before,\n",
    ),
    "a retry forgets that some were refused": (
        "assigned_before=job.attempt - job.refused,",
        "assigned_before=job.attempt,",
    ),
    "a retry looks at old uploads again": (
        "first_attempt=job.attempt + 1",
        "first_attempt=job.first_attempt",
    ),
    "what is gone is tried again": (
        '_may(job, "reopen") or at >= job.expires_at',
        '_may(job, "reopen")',
    ),
    "what is gone times out": (
        '_may(job, "wait_over") or event.at >= job.expires_at',
        '_may(job, "wait_over")',
    ),
    "a wait that is over cancels": ("TimedOut(event.at, event.why)", "Cancelled(event.at)"),
    "a purge takes what runs": ('"purge": Move(frozenset({_Q})', '"purge": Move(frozenset({_Q, _P})'),
    "a purge does not say so": ("PURGED if purged else None", "None"),
    "a cancel says it was a purge": ("PURGED if purged else None", "PURGED"),
    "a life is lengthened": ("min(job.ttl_at, event.until)", "event.until"),
    "what is gone is shortened": ("job.name is None or event.at >= job.expires_at", "job.name is None"),
    "nobody knows why it waits": ("replace(job, state=state, reason=again.why)", "replace(job, state=state)"),
    "an ended job still waits for a reason": (
        "replace(job, state=state, reason=reason)",
        "replace(job, state=state, reason=reason or job.reason)",
    ),
    "cancel stops nobody": ('(*_stop(job, "cancelled"), *published)', "published"),
    "expiry stops nobody": ('(*_stop(job, "expired"), Publish(None))', "(Publish(None),)"),
    "giving up is not said": ("_gave_up(why, counted) if end", "why if end"),
}


def _survives() -> bool:
    path = Path(__file__).with_name("test_job_machine.py")
    source = path.read_text(encoding="utf-8").replace(
        "\nfrom tests.control import job_machine\n", "\nimport sys; job_machine = sys.modules['mutant']\n"
    )
    with first_failure():
        try:
            for check in examples_last(load("tests_of_a_mutant", path, source)):
                check()
        except Exception:
            return False
    return True


def _broken(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The machine with this piece replaced, in itself or in one of the two modules of rules that it uses."""
    for rules in (job_states, policy):
        if old in Path(rules.__file__).read_text(encoding="utf-8"):
            monkeypatch.setitem(sys.modules, rules.__name__, mutant(rules, old, new))
            return _copied()
    return mutant(job_machine, old, new)


def _copied() -> types.ModuleType:
    path = Path(job_machine.__file__)
    return load("mutant_of_job", path, path.read_text(encoding="utf-8"))


def _run(module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setitem(sys.modules, "mutant", module)
    return _survives()


def test_the_machine_itself_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(job_machine, monkeypatch)
    for rules in (job_states, policy):  # copies of which nothing is replaced
        monkeypatch.setitem(sys.modules, rules.__name__, mutant(rules, "from __future__", "from __future__"))
    assert _run(_copied(), monkeypatch)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_killed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _run(_broken(*MUTANTS[name], monkeypatch), monkeypatch)
