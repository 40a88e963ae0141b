"""The data that the control plane's parts hand each other: submissions in, views of stored jobs out.

Plain frozen data; times are seconds since the epoch, durations name their unit. Payloads stay JSON bytes.
`control.jobs.records` writes a view on the wire; `control.store` stores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import force_setattr

from stoker.control.rules.access import ALL, Access
from stoker.control.rules.job_states import TERMINAL, JobState
from stoker.control.rules.limits import DEFAULT_EXECUTION_TIMEOUT_MS, DEFAULT_TTL_MS, RETENTION_S
from stoker.control.rules.needs import Needs
from stoker.control.rules.nodes.validation import AssignedAttempt
from stoker.control.rules.pods import WantedPod
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.quotas import UNBOUNDED, Quota
from stoker.control.rules.submissions import Once, S3Config
from stoker.outbound.wait_limits import Waiter
from stoker.wire.messages import (
    Artifact,
    AttemptKey,
    LockedWeights,
    Price,
    Ref,
    RegistryAuth,
    Saved,
    WorkerLimits,
)
from stoker.wire.records import Hiding

LOAD_BALANCER = "LOAD_BALANCER"
"""The type of an endpoint whose workers serve HTTP; the other type is QUEUE."""


class EndpointVersion(Struct, frozen=True):
    """The program that a worker runs: data, fixed once stored. Of a protocol worker `handler` is its
    command's folder; where there is an `image`, the worker is a container of it. `weights` are on the node
    before the worker starts."""

    handler: str
    env: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = 1
    schema: Mapping[str, Any] | None = None
    prices: tuple[Price, ...] = ()
    preload: tuple[str, ...] = ()
    kind: str = "python"
    command: tuple[str, ...] = ()
    image: str = ""
    registry: RegistryAuth | None = None
    volume: str = ""
    limits: WorkerLimits | None = None
    start_timeout_s: float = 420.0
    max_jobs: int | None = None
    max_growth_bytes: int | None = None
    needs: Needs = field(default_factory=Needs)
    entrypoint: tuple[str, ...] = ()
    disk_bytes: int | None = None
    weights: tuple[LockedWeights, ...] = ()


AS_MANY_AS_FIT = 1_000
"""The `workers_max` of an endpoint that may have a worker wherever there is a place; hosted ones have it by
default."""


class Replay(Struct, frozen=True):
    """A job that is run again: `job`, on `node`. `endpoint`: the one whose keys may call the replay.
    `stop_after`: as in Assign. `stream`: the attempt with which the job's chunks are stored that its save
    covers; None where the replay goes on from none."""

    job: str
    endpoint: str
    node: str
    stop_after: int = 0
    stream: int | None = None


class Endpoint(Struct, frozen=True):
    """An endpoint. `origin`: "file", declared in the configuration, or "api". `template` is the id of the
    template that the endpoint was made from, `api_key` that of the key that created it. `requested` holds the
    other fields of the request to the management API, to be returned again."""

    id: str
    account: str
    name: str
    version: int
    run: EndpointVersion
    hosted: bool = False
    workers_min: int = 0
    workers_max: int = 3
    idle_timeout_s: int = 5
    execution_timeout_ms: int = DEFAULT_EXECUTION_TIMEOUT_MS
    ttl_ms: int = DEFAULT_TTL_MS
    max_attempts: int = 3
    handler_retries: int = 0
    origin: str = "file"
    type: str = "QUEUE"
    scaler_type: str = "REQUEST_COUNT"
    scaler_value: int = 1
    template: str = ""
    requested: Mapping[str, Any] = field(default_factory=dict)
    created_at: float = 0.0
    quota: Quota = UNBOUNDED
    api_key: str = ""
    keep_cases: bool = False
    replay: Replay | None = None
    """The replay that the endpoint was made for, if it was made for one: read from `requested`."""

    rights: str = ""
    """The id of the endpoint whose keys may call this one: of a replay, that of its job."""

    def __post_init__(self) -> None:
        """Reads what each call asks for once."""
        found = self.requested.get("replay")
        force_setattr(self, "replay", None if found is None else Replay(**found))
        force_setattr(self, "rights", self.id if found is None else str(found["endpoint"]))

    @property
    def temporary(self) -> bool:
        """True if the endpoint is deleted when it was not used for 24 hours."""
        return bool(self.requested.get("temporary"))

    @property
    def takes_at_once(self) -> int | None:
        """The number of requests that a worker of a load-balancing endpoint is expected to take at once. Such
        a worker has no slots, so this limits nothing; None for a queue endpoint, whose workers have."""
        return self.scaler_value if self.type == LOAD_BALANCER else None


class Template(Hiding, frozen=True):
    """The fields that endpoints and pods are made from, named as in the management API."""

    HIDDEN = ("fields",)

    id: str
    account: str
    name: str
    fields: Mapping[str, Any]
    created_at: float = 0.0


class JobView(Struct, frozen=True):
    """A stored job as its caller may see it. `logs` are the last lines of an attempt that failed.
    `traceparent`: its parent in a trace; only in the view of a job that has just ended. `stream`: the attempt
    that its chunks are numbered by, an earlier one where the current attempt goes on from a save; 0 where it
    was not asked for. `ahead`: of a job that waits, the jobs before it, where they were counted;
    `expected_start`: when it is expected to start."""

    id: str
    endpoint: str
    state: JobState
    created_at: float
    sync: bool = False
    attempt: int = 0
    retries: int = 0
    worker: str | None = None
    delay_ms: int | None = None
    execution_ms: int | None = None
    output: bytes | None = None
    output_ref: Ref | None = None
    progress: bytes | None = None
    error: str | None = None
    reason: str | None = None
    webhook: str | None = None
    not_before: float = 0.0
    logs: tuple[str, ...] = ()
    traceparent: str | None = None
    stream: int = 0
    ahead: int | None = None
    expected_start: float | None = None

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL


class NewJob(Struct, frozen=True):
    """A job that is to be stored. `api_key`: the id of the key that submitted it. `metered`: a quota counts
    the job. `traceparent`: the span that is the job's parent. `start_by`, `deadline`: moments at which it is
    ended, unless it was given to a worker, or had ended, by then. `saved`: a save of another job, from which
    it goes on."""

    id: str
    account: str
    endpoint: str
    created_at: float
    expires_at: float
    execution_timeout_ms: int
    sync: bool
    retention_s: float = RETENTION_S
    max_attempts: int = 3
    handler_retries: int = 0
    priority: Priority = Priority.NORMAL
    start_by: float | None = None
    deadline: float | None = None
    webhook: str | None = None
    input: bytes | None = None
    input_ref: Ref | None = None
    s3: S3Config | None = None
    once: Once | None = None
    api_key: str = ""
    metered: bool = False
    traceparent: str | None = None
    saved: Saved | None = None


class Slot(Struct, frozen=True):
    """Room for `free` more jobs of `endpoint` on one worker, held by one session of a node. `saves`: its
    agent can go on from a save."""

    endpoint: str
    node: str
    session: int
    worker: str
    free: int
    saves: bool = True


class Claimed(Struct, frozen=True):
    """A job that was just moved to IN_PROGRESS, with all that its Assign needs."""

    job: str
    attempt: int
    account: str
    endpoint: str
    node: str
    worker: str
    created_at: float
    expires_at: float
    execution_timeout_ms: int
    input: bytes | None
    input_ref: Ref | None
    s3: S3Config | None
    api_key: str = ""
    traceparent: str | None = None
    saved: Saved | None = None


class UploadRight(Struct, frozen=True):
    """The part of the object store that a node may use for an attempt: the endpoint names the prefix.
    `kept_keys`: the chunks which its save covers, of those that were asked for."""

    endpoint: str
    input_key: str | None
    save_key: str | None = None
    kept_keys: frozenset[str] = frozenset()


class TracedAttempt(Struct, frozen=True):
    """An attempt of a job with a parent in a trace, as its node reported its end. `end`: as in Outcome.
    `uploaded`: its output or files are in an object store."""

    traceparent: str
    created_at: float
    attempt: int
    node: str
    worker: str
    end: str
    claimed_at: float
    wait_ms: int
    execution_ms: int
    uploaded: bool


class Changed(Struct, frozen=True):
    """A job whose row changed: its waiters are woken. `cancel` names an attempt that must stop.

    `view` is there when the job ended, as its caller may see it. `losers` are the object-key prefixes of
    attempts that produced nothing that counts. `gone`: the record was deleted, since its time has passed.
    `cause`: of a job that waits again, why. `traced`: the attempt that ended with this change.
    """

    job: str
    endpoint: str
    state: JobState
    cancel: tuple[str, AttemptKey] | None = None  # (node, attempt)
    view: JobView | None = None
    losers: tuple[str, ...] = ()
    gone: bool = False
    cause: str = ""
    traced: TracedAttempt | None = None


class Submitted(Struct, frozen=True):
    """The result of a submission. `repeated`: the idempotency key was known, and `view` is the job of its
    first use."""

    view: JobView
    claimed: tuple[Claimed, ...] = ()
    repeated: bool = False


class EndpointHealth(Struct, frozen=True):
    """The eleven counters of `/health`; `unhealthy_devices` are those on which no worker is placed, and why.
    `reason`: why workers are throttled, or what one waits for before it starts. `serves`: what the workers
    that are ready say that they run."""

    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    in_queue: int = 0
    retried: int = 0
    idle: int = 0
    initializing: int = 0
    ready: int = 0
    running: int = 0
    throttled: int = 0
    unhealthy: int = 0
    unhealthy_devices: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    serves: tuple[str, ...] = ()


class Cost(Struct, frozen=True):
    """An amount that was added to the bill of an endpoint or a pod: `kind` says which."""

    kind: str
    resource: str
    nano_usd: int


class ReportsApplied(Struct, frozen=True):
    """The effects of a batch of reports: jobs that changed, and attempts that are stale and must stop.

    `chunks` are the attempts with something new for stream readers: a chunk, or a progress value. `orphans`
    were uploaded by attempts whose end does not count; they are to be deleted. `pods` are as they are now.
    `costs` were billed. `delayed`: the attempts whose upload failed and is tried again.
    """

    changed: tuple[Changed, ...] = ()
    chunks: tuple[AttemptKey, ...] = ()
    stale: tuple[AttemptKey, ...] = ()
    orphans: tuple[Artifact, ...] = ()
    pods: tuple[WantedPod, ...] = ()
    costs: tuple[Cost, ...] = ()
    delayed: tuple[AttemptKey, ...] = ()


class Reconciled(Struct, frozen=True):
    """The effects of a node's Hello: which of its attempts go on, which must stop, which jobs changed. The
    node may still report on the `assigned` ones."""

    keep: tuple[AttemptKey, ...] = ()
    stop: tuple[AttemptKey, ...] = ()
    changed: tuple[Changed, ...] = ()
    assigned: Mapping[AttemptKey, AssignedAttempt] = field(default_factory=dict)


class QueueSample(Struct, frozen=True):
    """A sample of one endpoint's queue. `low` are the waiting jobs of low priority, not counted in `queued`,
    and `urgent` those of `queued` that are urgent. Of all but the low ones, the job that waits longest does
    so since `waiting_since`, which lies ahead while all back off.
    """

    endpoint: str
    queued: int = 0
    low: int = 0
    in_progress: int = 0
    waiting_since: float | None = None
    urgent: int = 0


class Counted(Struct, frozen=True):
    """An endpoint's living jobs. `exact` is False where counting stopped at its limit."""

    queued: int = 0
    in_progress: int = 0
    exact: bool = True


class Listing(Struct, frozen=True):
    """The records of an endpoint that are wanted, newest first. `before`: the cursor of an earlier page.
    `since` and `until`: when they were submitted, in seconds since the epoch. `error`: a part of why they
    ended."""

    state: JobState | None = None
    since: float | None = None
    limit: int = 100
    before: int | None = None
    until: float | None = None
    worker: str | None = None
    node: str | None = None
    error: str | None = None


class Page(Struct, frozen=True):
    """A page of an endpoint's records. `cursor` is where the next page begins; None where there is none."""

    views: tuple[JobView, ...]
    cursor: int | None = None


class UploadedFile(Struct, frozen=True):
    """A caller's file in the object store: a URL to be named in inputs, until `expires_at`."""

    url: str
    size: int
    sha256: str
    expires_at: float


class Delivery(Struct, frozen=True):
    """A webhook that is due: the job's record as it was when it ended, and its input. `id` stays the same.
    `whose`: the caller of its job, and the host that receives it."""

    id: str
    url: str
    whose: Waiter
    tries: int
    view: JobView
    input: bytes | None
    input_ref: Ref | None


class KeyRecord(Struct, frozen=True):
    """A key or join token as it is listed; its secret half is known to its owner only.

    `uses_left`: of a join token, how many nodes may still join with it; None: any number. `priority`: the
    highest class that a key may submit; None: as its scope has it.
    """

    id: str
    account: str
    name: str
    created_at: float
    revoked_at: float | None = None
    kind: Literal["key", "join", "node"] = "key"
    access: Access = ALL
    expires_at: float | None = None
    last_used_at: float | None = None
    uses_left: int | None = None
    quota: Quota = UNBOUNDED
    priority: Priority | None = None


class AuditLine(Struct, frozen=True):
    """A line of the audit log. `status` is None where the service went away before it answered."""

    n: int
    at: float
    key: str
    method: str
    path: str
    status: int | None
    message: str
