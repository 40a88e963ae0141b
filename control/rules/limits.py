"""The numbers of the interface, each below with the line of its description that sets it.

Pure. All that check, document or default one of them import it from here. A line in quotes is the
interface's own; without quotes the number is ours, because the interface leaves it open. The bounds of the
hosted models' inputs stand in the schemas of `models`, which import nothing of control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

MIB = 1024 * 1024
DAY_S = 86_400.0

# -- jobs

EXECUTION_TIMEOUT_MS = (5_000, 604_800_000)
"""Job policy bounds: "executionTimeout 5 seconds to 7 days"."""

DEFAULT_EXECUTION_TIMEOUT_MS = 600_000
"""Policy, executionTimeout: "600000 (10 minutes)"."""

TTL_MS = (10_000, 604_800_000)
"""Job policy bounds: "ttl 10 seconds to 7 days"."""

START_BY_MS = DEADLINE_MS = (1_000, TTL_MS[1])
"""`policy.startBy` and `policy.deadline`, from submission: ours."""

DEFAULT_TTL_MS = 86_400_000
"""Policy, ttl: "86400000 (24 hours)"."""

RETENTION_S = 1_800
"""Result retention: "30 minutes for /run"."""

RETENTION_SYNC_S, RETENTION_SYNC_MOST_S = 60, 300
"""/runsync: "results stay available for 1 minute (5 minutes at most)"."""

URL_LIFE_S = 7 * DAY_S
"""Limits: "Generated image and video URLs expire after 7 days"."""

WEBHOOK_TRIES, WEBHOOK_RETRY_S = 3, 10.0
"""Webhook: "If the call fails, it is retried up to 2 more times, 10 seconds apart"."""

WEBHOOK_TAKEN = 200
"""Webhook: "The receiver must answer with status 200"."""

URL_LENGTH = 2_048
"""Characters of a webhook or of an s3Config's endpointUrl."""

TEXT_LENGTH = 1_024
"""Characters of each text of an s3Config: S3 allows no longer keys, and all of them go to the worker in one
header."""

KEY_LENGTH, KEY_LIFE_S = 255, DAY_S
"""Characters of an `Idempotency-Key`, and how long it stands for its job."""

FILE_LIFE_S = DAY_S
"""How long a file of `/files` can be named in an input."""

# -- calls

RUN_BYTES, RUNSYNC_BYTES, FILE_BYTES = 10 * MIB, 20 * MIB, 60 * MIB
"""The most that the body of `/run`, `/runsync` and `/files` may have."""

INLINE_BYTES = 20 * MIB
"""The most that an answer holds of one output, or of the chunks of one poll; a larger output is a URL."""

GATEWAY_BYTES = 30 * MIB
"""The most that a request to a load-balancing endpoint, and its response, may have in their body."""

MANAGEMENT_BYTES = MIB
"""The most that a body of the management API may have."""

WAIT_MS = (1_000, 300_000)
"""`?wait=` of `/runsync`, `/status-sync` and `/stream`."""

DEFAULT_WAIT_MS, HOSTED_WAIT_MS, STREAM_WAIT_MS = 90_000, 300_000, 8_000
"""The wait without `?wait=`: of `/runsync` and `/status-sync`, of a hosted model's `/runsync`, and of
`/stream`, which is below the 10 s after which the stock Python client gives up."""

STATUS_TTL_MS = (1_000, 604_800_000)
"""`?ttl=` of `/status`, which only shortens a job's life."""

PAGE_SIZE, DEFAULT_PAGE_SIZE = (1, 1_000), 100
"""`?limit=` of `/requests`."""

# -- rates

WINDOW_MS = 10_000
"""Limits: "Requests per 10 seconds"."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Requests in a window; requests inside at once, where that is limited."""

    window: int
    at_once: int | None


_POLLS = RateLimit(2_000, 400)

RATE_LIMITS: Mapping[str, RateLimit] = MappingProxyType(
    {
        "runsync": _POLLS,  # "/runsync 2000 400"
        "run": RateLimit(1_000, 200),  # "/run 1000 200"
        "status": _POLLS,  # "/status 2000 400"
        "status-sync": _POLLS,  # ours, as /status
        "stream": _POLLS,  # "/stream 2000 400"
        "logs": _POLLS,  # ours, as /status
        "attempts": _POLLS,  # ours, as /status
        "input": RateLimit(100, 20),  # ours, as /cancel: it may be 20 MiB
        "case": RateLimit(10, 2),  # ours, as /requests: it may hold a save of 40 MiB
        "replay": RateLimit(10, 2),  # ours, as /case
        "cancel": RateLimit(100, 20),  # "/cancel 100 20"
        "requests": RateLimit(10, 2),  # "/requests 10 2"
        "purge-queue": RateLimit(2, None),  # "/purge-queue 2 not applicable"
        "openai": _POLLS,  # "/openai/* 2000 400"
        "files": RateLimit(200, None),  # ours
    }
)
"""The base limits. "Rate limits of /retry, /health, hosted model endpoints and the management API: not
shown": an operation that is not named here is not limited."""

REQUESTS_PER_WORKER = 50
"""Limits: "the higher of the base limit and number_of_running_workers x requests_per_worker", whose value is
left open."""

# -- endpoints

TEMPORARY_LIFE_S = DAY_S
"""How long a temporary endpoint is kept after its last use."""

REPLAY_LIFE_S = 3_600.0
"""The same of the endpoint of a replay."""

REPLAYS_MOST = 50
"""How many endpoints of replays of one endpoint's jobs there may be."""

TEMPORARY_WARM_S = 1_800.0
"""How long after its last use a temporary endpoint keeps its minimum of workers."""

# -- the local development server

DEV_HOST, DEV_PORT = "localhost", 8_888
"""Flags: "--host localhost", "--port 8888"."""

DEV_PORTS = 20
"""Flags: "when the port is in use, the next available port is tried"; so many are, with the first."""

DEV_DEPLOYS_AT_ONCE = 3
"""Auto-provisioning: "at most 3 concurrent deployments"."""

DEV_CONFIRMS_ABOVE = 5
"""Auto-provisioning: "confirmation above 5 endpoints"."""
