"""What a client does step by step: send a call, pause, send it again. Nothing here sends or sleeps.

A conversation is a generator of steps. Whoever carries it out sends each Call and gives the Reply back, or
throws Unreachable into it, and sleeps for each Pause; what it returns is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from stoker.client import calls
from stoker.client.calls import Call, Reply
from stoker.client.errors import ApiError, ClientError, JobFailed, NotEnded, Unreachable
from stoker.client.records import JobRecord

T = TypeVar("T")

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Before the first resend, the second, and so on: a service that starts anew is back within these."""

LONGEST_PAUSE_S = 30.0
"""Asked to wait longer than this, a call gives up: its caller decides."""

WAIT_MS = (1_000, 90_000)
"""How long one held call may ask the service to wait; more are made when that is not enough."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Steps: TypeAlias = Generator[Call[Any] | Pause, Reply, T]


def pause_before_resend(error: ClientError, resends: int, allowed: int) -> Pause | None:
    """How long to wait before sending again after so many resends; None: the error stands."""
    if resends >= min(allowed, len(PAUSES_S)):
        return None
    if isinstance(error, Unreachable):
        return Pause(PAUSES_S[resends])
    if isinstance(error, ApiError) and error.retry_after is not None and error.retry_after <= LONGEST_PAUSE_S:
        return Pause(max(PAUSES_S[resends], error.retry_after))
    return None


def ask(call: Call[T], allowed: int) -> Steps[T]:
    """One call, sent again at most `allowed` times where that is safe."""
    resends = 0
    while True:
        try:
            return calls.result(call, (yield call))
        except ClientError as error:
            pause = pause_before_resend(error, resends, allowed) if call.again else None
            if pause is None:
                raise
        resends += 1
        yield pause


def wait(
    endpoint: str, job: str, timeout_s: float | None, clock: Callable[[], float], allowed: int
) -> Steps[JobRecord]:
    """Until the job has COMPLETED. May end a second late: no shorter wait can be asked for."""
    until = None if timeout_s is None else clock() + timeout_s
    while True:
        record = yield from ask(calls.status_sync(endpoint, job, _wait_ms(until, clock)), allowed)
        if record.succeeded:
            return record
        if record.ended:
            raise JobFailed(record)
        if timeout_s is not None and until is not None and clock() >= until:
            raise NotEnded(record, timeout_s)


def _wait_ms(until: float | None, clock: Callable[[], float]) -> int:
    low, high = WAIT_MS
    return high if until is None else max(low, min(high, round((until - clock()) * 1000)))
