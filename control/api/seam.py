"""What the HTTP layer asks of the control plane, and what it may be set to.

`control.plane.Plane` answers it in the service; tests answer it with one in memory. Nothing here knows of
requests, nothing behind it knows of HTTP.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Protocol

from stoker.control.access import Caller
from stoker.control.types import (
    AttemptLog,
    Cursor,
    Endpoint,
    GivenFile,
    Health,
    JobView,
    Listing,
    LogEvent,
    Page,
    StreamEvent,
    StreamPoll,
    Submission,
)


class EndpointBook(Protocol):
    def find(self, account: str, endpoint: str) -> Endpoint:
        """The endpoint of this id or alias; NotFound where the account has none."""


class PlaneApi(Protocol):
    """Errors are `control.errors`; a view's spilled output was put back, or is not given."""

    @property
    def endpoints(self) -> EndpointBook: ...

    async def find_caller(self, token: str) -> Caller | None: ...

    async def submit(self, account: str, endpoint: str, submission: Submission, *, sync: bool) -> JobView: ...

    async def run_sync(
        self, account: str, endpoint: str, submission: Submission, seconds: float
    ) -> JobView: ...

    async def wait(self, account: str, endpoint: str, job: str, seconds: float) -> JobView: ...

    async def status(self, account: str, endpoint: str, job: str, ttl_ms: int | None = None) -> JobView:
        """`ttl_ms` shortens the record's life, and the job's, to so long from now."""

    async def view(self, account: str, endpoint: str, job: str) -> JobView:
        """As it is stored: a large output is only named."""

    async def cancel(self, account: str, endpoint: str, job: str) -> JobView: ...

    async def retry(self, account: str, endpoint: str, job: str) -> JobView:
        """BadRequest where the job is neither FAILED nor TIMED_OUT."""

    async def purge(self, account: str, endpoint: str) -> int:
        """How many queued jobs were cancelled."""

    async def requests(self, account: str, endpoint: str, listing: Listing) -> Page: ...

    async def logs(self, account: str, endpoint: str, job: str) -> tuple[AttemptLog, ...]: ...

    def running_workers(self, endpoint: str) -> int:
        """Of an endpoint's id."""

    async def poll_stream(self, account: str, endpoint: str, job: str, seconds: float) -> StreamPoll: ...

    async def advance(self, job: str, cursor: Cursor) -> None: ...

    def follow(
        self, account: str, endpoint: str, job: str, after: tuple[int, int] | None
    ) -> AsyncIterator[StreamEvent]: ...

    def follow_logs(
        self, account: str, endpoint: str, job: str, after: tuple[int, int] | None
    ) -> AsyncIterator[LogEvent]: ...

    async def keep_file(
        self, account: str, endpoint: str, name: str, data: bytes, media_type: str
    ) -> GivenFile:
        """For a day."""

    async def health(self, account: str, endpoint: str) -> Health: ...


MIB = 1024 * 1024


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Waits in milliseconds as callers give them. `rng` draws the ids of inputs that are refused.

    `now_ms` is the clock of the rate limits: it never goes back.
    """

    run_body_bytes: int = 10 * MIB
    runsync_body_bytes: int = 20 * MIB
    file_bytes: int = 60 * MIB
    wait_ms: int = 90_000
    hosted_wait_ms: int = 300_000
    stream_wait_ms: int = 8_000  # below the 10 s after which the stock Python client gives up
    keepalive_s: float = 15.0
    rate_limits: bool = True
    requests_per_worker: int = 50
    now_ms: Callable[[], int] = monotonic_ms
    cors_origins: tuple[str, ...] = ()
    version: str = "0.1.0"
    rng: Random = field(default_factory=SystemRandom)
