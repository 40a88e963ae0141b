"""The states of `agent.jobs.attempts.attempt_machine`. Pure data."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from stoker.agent.jobs.attempts.events import Dropped, HandBack, LeaseLost, Stop, Verdict


class Waiting(Struct, frozen=True):
    """The state of an attempt whose worker runs another: this attempt is next, or behind the next. It is not
    begun: `timeout_s` is counted from when it runs.

    `sent`: its run is in the worker's socket, and the worker may begin it as soon as it has ended the one
    before. `end`: what ends it, unless the worker turns out to have begun it.
    """

    ttl_at: float
    timeout_s: float
    fetch: bool = False
    sent: bool = False
    end: Stop | LeaseLost | Dropped | HandBack | None = None


class Fetching(Struct, frozen=True):
    """The state of an attempt whose input is being fetched, or the caller's bucket tried; it holds a slot.
    `timeout_s` is counted from when it runs."""

    ttl_at: float
    timeout_s: float


class Running(Struct, frozen=True):
    started: float
    deadline: float
    ttl_at: float


class Cancelling(Struct, frozen=True):
    """The cancel frame is sent. A verdict of None: nothing is to be reported."""

    term_at: float
    verdict: Verdict | None


class Terminating(Struct, frozen=True):
    """The state of an attempt whose worker is being ended by signals."""

    verdict: Verdict | None


class Uploading(Struct, frozen=True):
    """The handler is done and the slot free. The ttl still counts, executionTimeout does not."""

    ttl_at: float
    failures: int = 0
    retry_at: float | None = None
    last_error: str = ""


class Flushing(Struct, frozen=True):
    """The handler is done, the slot free, and chunks of the stream wait to be reported before the verdict.

    `until` is the ttl of a completed attempt; `upload`: whether its result is uploaded next.
    """

    until: float
    verdict: Verdict
    upload: bool = False
    last_error: str = ""


class Reporting(Struct, frozen=True):
    """The outcome is in the outbox."""

    verdict: Verdict


class Over(Struct, frozen=True):
    """Nothing is left to do."""


State: TypeAlias = (
    Waiting | Fetching | Running | Cancelling | Terminating | Flushing | Uploading | Reporting | Over
)
