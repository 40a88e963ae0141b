"""The steps of a call: send it, pause, send it again. Pure: nothing here sends or sleeps.

The steps are a generator. The client sends each Call and sends the Reply into the generator, or throws
Unreachable into it, and sleeps for each Pause. The generator returns the result.
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
"""The pauses before the first resend, the second, and so on. A service that restarts responds again within
their sum."""

LONGEST_PAUSE_S = 30.0
"""If the service requests a longer wait, the call raises the error, and the caller decides."""

WAIT_MS = (1_000, 90_000)
"""Shortest and longest wait of one long-polling call; `wait` makes as many calls as it needs."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Steps: TypeAlias = Generator[Call[Any] | Pause, Reply, T]


def pause_before_resend(error: ClientError, resends: int, allowed: int) -> Pause | None:
    """Returns the pause before the next resend, after `resends` of them; None if the call must not be sent
    again."""
    if resends >= min(allowed, len(PAUSES_S)):
        return None
    if isinstance(error, Unreachable):
        return Pause(PAUSES_S[resends])
    if isinstance(error, ApiError) and error.retry_after is not None and error.retry_after <= LONGEST_PAUSE_S:
        return Pause(max(PAUSES_S[resends], error.retry_after))
    return None


def send(call: Call[T], allowed: int) -> Steps[T]:
    """Sends a call, and sends it again at most `allowed` times if that is safe."""
    resends = 0
    while True:
        try:
            return calls.result(call, (yield call))
        except ClientError as error:
            pause = pause_before_resend(error, resends, allowed) if call.idempotent else None
            if pause is None:
                raise
        resends += 1
        yield pause


def wait(
    endpoint: str, job: str, timeout_s: float | None, clock: Callable[[], float], allowed: int
) -> Steps[JobRecord]:
    """Waits until the job has COMPLETED. May time out a second late: the service accepts no shorter wait."""
    until = None if timeout_s is None else clock() + timeout_s
    while True:
        record = yield from send(calls.status_sync(endpoint, job, _wait_ms(until, clock)), allowed)
        if record.succeeded:
            return record
        if record.ended:
            raise JobFailed(record)
        if timeout_s is not None and until is not None and clock() >= until:
            raise NotEnded(record, timeout_s)


def _wait_ms(until: float | None, clock: Callable[[], float]) -> int:
    low, high = WAIT_MS
    return high if until is None else max(low, min(high, round((until - clock()) * 1000)))
