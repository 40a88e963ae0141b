"""What an agent and the control plane say to each other, as plain frozen data.

These classes are the seam: the shells on both sides, and the simulation, speak them. Protocol Buffers
appear only in the gRPC adapters, through `wire.convert`. Payloads (`input`, `output`, `value`) are JSON
text in bytes, so that no part between the caller and the handler parses what it need not read.

    agent                                   control
      Hello  ------------------------------>            first message; or Refusal and the end
             <------------------------------  Welcome   session number, what to keep, what to stop
             <------------------------------  Desired   which workers shall exist (idempotent)
             <------------------------------  Assign, Cancel (idempotent by job and attempt)
      Report 7, 8, 9, Beat  --------------->
             <------------------------------  Ack 9     everything up to 9 is committed
      draining  --------------------------->            give me nothing new: I am about to go
             <------------------------------  stopping  my process ends: come back soon

    on a stream of its own, per session
      LogLines  --------------------------->            first who speaks, then lines of followed attempts
             <------------------------------  LogWanted which attempts are followed now
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

PROTOCOL = 1
"""This side's protocol version. Control accepts it and the one before."""

DeviceKind = Literal["gpu", "mig", "cpu"]
WorkerPhase = Literal["starting", "ready", "stopping", "unhealthy", "gone"]
AttemptPhase = Literal["running", "uploading", "reporting"]
PodPhase = Literal["creating", "running", "exited", "failed", "gone"]
PodWish = Literal["RUNNING", "EXITED", "TERMINATED"]
End = Literal["completed", "failed", "timed_out", "cancelled", "lost"]
"""How an attempt ended. `lost` is an infrastructure failure: control may retry it."""


def accepts_protocol(theirs: int, ours: int = PROTOCOL) -> bool:
    """Whether a side at version `ours` speaks with one at `theirs`: the same version or the one before."""
    return theirs >= 1 and ours - 1 <= theirs <= ours


@dataclass(frozen=True, slots=True)
class Device:
    uuid: str
    kind: str
    name: str
    index: int = 0
    parent: str | None = None
    memory_total: int | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One look at a device; what the driver does not tell is None. Bytes, percent, Celsius, watts.

    `ill` is why no worker may be placed on it, in a sentence; empty for a device that is well.
    """

    uuid: str
    memory_used: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    power: float | None = None
    ecc_uncorrected: int | None = None
    ill: str = ""


@dataclass(frozen=True, slots=True)
class AttemptKey:
    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class HeldWorker:
    worker: str
    endpoint: str
    version: int
    state: str
    devices: tuple[str, ...] = ()
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    job: str
    attempt: int
    worker: str
    phase: str

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job, self.attempt)


@dataclass(frozen=True, slots=True)
class HeldPod:
    """`version` and `restarts` as of the PodSpec that its container was made and last started for."""

    pod: str
    version: int
    restarts: int
    state: str


@dataclass(frozen=True, slots=True)
class Hello:
    protocol: int
    join_token: str
    node: str
    name: str
    boot: str
    agent_version: str
    devices: tuple[Device, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    workers: tuple[HeldWorker, ...] = ()
    attempts: tuple[HeldAttempt, ...] = ()
    first_unacked: int = 1
    samples: tuple[DeviceSample, ...] = ()
    pods: tuple[HeldPod, ...] = ()


@dataclass(frozen=True, slots=True)
class Beat:
    number: int
    samples: tuple[DeviceSample, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    job: str
    attempt: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a payload over 1 MB lies in the object store."""

    key: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of partial output. A piece over 1 MB lies where `ref` says; `value` is empty then."""

    job: str
    attempt: int
    n: int
    value: bytes
    ref: Ref | None = None


@dataclass(frozen=True, slots=True)
class Uploading:
    """The handler is done, and what it made is being uploaded."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Released:
    """The attempt holds no slot of its worker any more."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Span:
    """One thing that costs: `quantity` in `unit`, and its price in billionths of a US dollar."""

    kind: str
    unit: str
    quantity: int
    nano_usd: int


@dataclass(frozen=True, slots=True)
class Artifact:
    key: str
    size: int
    sha256: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Outcome:
    job: str
    attempt: int
    worker: str
    end: str
    output: bytes | None = None
    output_ref: Ref | None = None
    error: str | None = None
    retryable: bool = False
    wait_ms: int = 0
    execution_ms: int = 0
    spans: tuple[Span, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    log: tuple[str, ...] = ()
    log_first: int = 0


@dataclass(frozen=True, slots=True)
class WorkerState:
    """`slots`: how many attempts it takes at once now; None while it is not known."""

    worker: str
    endpoint: str
    version: int
    state: str
    reason: str = ""
    log_tail: tuple[str, ...] = ()
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The agent could not take this Assign, or gives it back; the attempt is not counted. `leaving`: because
    the node is about to go, so another one can have the job at once."""

    job: str
    attempt: int
    reason: str
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class PortMapping:
    """A port of a pod, and the host's port that leads there."""

    private: int
    public: int
    protocol: str


@dataclass(frozen=True, slots=True)
class PodState:
    """What the engine says of a pod's container now. Its version and restarts are those of the PodSpec that
    this is the answer to."""

    pod: str
    version: int
    restarts: int
    state: str
    reason: str = ""
    ports: tuple[PortMapping, ...] = ()
    exit_code: int | None = None
    started_ms: int | None = None
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VolumeUsed:
    """How much a network volume holds on this node; `gone`: its folder was removed as it was asked for."""

    volume: str
    used_bytes: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """A stretch of time for which a worker or a pod held its devices in one state. What it costs is for
    control to say. Spans of one owner do not overlap; (owner, boot, n) names one for ever: a span that is
    told again is the same span.

    `kind` is "worker" or "pod"; `state` of a worker is starting, running (it has a job) or idle, of a pod
    running. Times are milliseconds since the epoch, by the node's clock at the begin; the length is measured
    by a clock that never jumps.
    """

    owner: str
    boot: str
    n: int
    kind: str
    state: str
    began_ms: int
    ended_ms: int
    endpoint: str = ""
    version: int = 0
    devices: tuple[str, ...] = ()


ReportBody: TypeAlias = (
    Progress | Chunk | Uploading | Outcome | Released | WorkerState | Refused | PodState | VolumeUsed | Usage
)


@dataclass(frozen=True, slots=True)
class Report:
    number: int
    body: ReportBody


@dataclass(frozen=True, slots=True)
class FromAgent:
    hello: Hello | None = None
    beat: Beat | None = None
    reports: tuple[Report, ...] = ()
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Welcome:
    """`keep` and `stop`: what becomes of the attempts that Hello names."""

    session: int
    beat_s: float
    lease_s: float
    keep: tuple[AttemptKey, ...] = ()
    stop: tuple[AttemptKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Of one worker with everything it starts. None: the node's own limit, where it has one."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class RegistryAuth:
    """What an image is pulled with. Its password is never logged."""

    username: str
    password: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """`kind` is "python" or "protocol". A protocol worker is `command`, started in the folder `handler`.

    `preload` names what a python worker may be forked from a process that has imported already.
    With an `image` the worker is a container: `handler` lies in it, an empty `command` or `entrypoint` is the
    image's own; of a python worker `command` is the interpreter. `volume` names a folder below the node's
    volume root.
    A worker is replaced, when it is idle, after `max_jobs` and once it has grown by `max_growth_bytes` since
    it was ready. `share`: of its GPU's memory, where others work on it, too; nothing holds it to that.
    `hidden` are the secrets that lie in `env`: no log shows them.
    """

    worker: str
    endpoint: str
    version: int
    handler: str
    devices: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = 1
    start_timeout_s: float = 420.0
    kind: str = "python"
    command: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    image: str = ""
    registry: RegistryAuth | None = None
    volume: str = ""
    limits: WorkerLimits | None = None
    max_jobs: int | None = None
    max_growth_bytes: int | None = None
    share: float = 1.0
    entrypoint: tuple[str, ...] = ()
    hidden: tuple[str, ...] = field(repr=False, default=())


@dataclass(frozen=True, slots=True)
class PodPort:
    """`protocol` is http, tcp or udp."""

    private: int
    protocol: str


@dataclass(frozen=True, slots=True)
class PodSpec:
    """A container that somebody wants for its own sake. `wish` is RUNNING, EXITED or TERMINATED; of a pod
    that is not named nothing is changed.

    Another `version`: the container is made anew, and the pod's own volume stays. A higher `restarts`: the
    same container is started again. `volume` is a network volume, mounted at `volume_path`; without one the
    pod has a volume of its own there, that is kept until it is TERMINATED. Bytes are limits, where the engine
    can hold it to them.
    """

    pod: str
    version: int
    wish: str
    image: str
    restarts: int = 0
    registry: RegistryAuth | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    ports: tuple[PodPort, ...] = ()
    limits: WorkerLimits | None = None
    disk_bytes: int | None = None
    volume: str = ""
    volume_path: str = "/workspace"
    volume_bytes: int | None = None
    hidden: tuple[str, ...] = field(repr=False, default=())


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """A network volume that this node can reach. It is measured; `gone`: its folder is to be removed."""

    volume: str
    size_bytes: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Desired:
    revision: int
    workers: tuple[WorkerSpec, ...] = ()
    pods: tuple[PodSpec, ...] = ()
    volumes: tuple[VolumeSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Ack:
    report: int
    beat: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to write below one prefix of one bucket. Its secret is never logged."""

    endpoint_url: str
    public_endpoint: str
    region: str
    bucket: str
    prefix: str
    access_id: str
    access_secret: str = field(repr=False, default="")
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Price:
    """`nano_usd` billionths of a US dollar for each unit of what the handler measures as `metric`."""

    metric: str
    nano_usd: int


@dataclass(frozen=True, slots=True)
class Assign:
    """`private_inputs`: URLs that the handler has fetched may lie at private addresses."""

    job: str
    attempt: int
    worker: str
    input: bytes | None = None
    input_ref: Ref | None = None
    execution_timeout_ms: int = 600_000
    ttl_s: float = 86_400.0
    grant: Grant | None = None
    prices: tuple[Price, ...] = ()
    files_grant: Grant | None = None
    private_inputs: bool = False

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job, self.attempt)


@dataclass(frozen=True, slots=True)
class Cancel:
    job: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class FromControl:
    welcome: Welcome | None = None
    refusal: Refusal | None = None
    desired: Desired | None = None
    ack: Ack | None = None
    assigns: tuple[Assign, ...] = ()
    cancels: tuple[Cancel, ...] = ()
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class LogHello:
    join_token: str = field(repr=False)
    node: str
    session: int


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines of one attempt, counted from 0. `first` is above the last one's number plus one where some were
    left out between. `over`: nothing follows."""

    hello: LogHello | None = None
    job: str = ""
    attempt: int = 0
    first: int = 0
    lines: tuple[str, ...] = ()
    over: bool = False

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job, self.attempt)


@dataclass(frozen=True, slots=True)
class LogWanted:
    attempts: tuple[AttemptKey, ...] = ()
