"""Settings of the HTTP layer."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random, SystemRandom

from msgspec import Struct, field

from stoker.control.rules.limits import (
    DEFAULT_WAIT_MS,
    FILE_BYTES,
    HOSTED_WAIT_MS,
    REQUESTS_PER_WORKER,
    RUN_BYTES,
    RUNSYNC_BYTES,
    STREAM_WAIT_MS,
)

KEEPALIVE_S = 15.0
"""After so long without an event, a stream of events has a comment."""


class ApiSettings(Struct, frozen=True):
    """Waits in milliseconds as callers give them. `rng` draws the ids of inputs that are refused.

    `gateway_domain`: requests to names below it are the gateway's, whatever their path.
    `spool`: the folder of temporary files; None: the system's.
    `now_ns` is the clock of the rate limits: it never goes back.
    """

    run_body_bytes: int = RUN_BYTES
    runsync_body_bytes: int = RUNSYNC_BYTES
    file_bytes: int = FILE_BYTES
    wait_ms: int = DEFAULT_WAIT_MS
    hosted_wait_ms: int = HOSTED_WAIT_MS
    stream_wait_ms: int = STREAM_WAIT_MS
    keepalive_s: float = KEEPALIVE_S
    rate_limits: bool = True
    requests_per_worker: int = REQUESTS_PER_WORKER
    now_ns: Callable[[], int] = time.monotonic_ns
    cors_origins: tuple[str, ...] = ()
    gateway_domain: str = ""
    version: str = "0.1.0"
    spool: str | None = None
    rng: Random = field(default_factory=SystemRandom)
