"""Messages from an agent to the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from stoker.wire.messages.shared import AttemptKey, Device, DeviceSample, Ref
from stoker.wire.records import record


@record(frozen=True, slots=True)
class StartStage:
    """A stage of a worker's start, from what it waited for until it was ready, and how long it took."""

    name: str
    took_ms: int


@record(frozen=True, slots=True)
class HeldWorker:
    """A worker that a node has. `waits_for` and `cold_start`: as in WorkerState."""

    worker: str
    endpoint: str
    version: int
    state: str
    devices: tuple[str, ...] = ()
    slots: int | None = None
    serves: str = ""
    waits_for: str = ""
    cold_start: tuple[StartStage, ...] = ()


@record(frozen=True, slots=True)
class HeldAttempt:
    job: str
    attempt: int
    worker: str
    phase: str

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job, self.attempt)


@record(frozen=True, slots=True)
class HeldPod:
    """A pod that a node has. `version` and `restarts` are those of the PodSpec that the container was made
    and last started for."""

    pod: str
    version: int
    restarts: int
    state: str


@record(frozen=True, slots=True)
class GatewayAddress:
    """The way for control on the same host to the http workers of a node: HTTP CONNECT to a worker's name at
    this port, with the token as bearer. The address is the one that the session comes from. `namespace`: the
    network namespace that the address is in (`wire.network_namespace`)."""

    port: int
    token: str = field(repr=False)
    namespace: str = ""


@record(frozen=True, slots=True)
class DirectGateway:
    """The way for control on another host to the http workers of a node: as GatewayAddress, but over TLS,
    with this `certificate` (DER) and no other. `host` is an IP address; empty: the address that the session
    comes from."""

    host: str
    port: int
    token: str = field(repr=False)
    certificate: bytes = field(repr=False)


@record(frozen=True, slots=True)
class Hello:
    """The first message of a session. `jobs_ahead`: how many jobs may lie ahead of a worker that runs one; of
    an agent that does not know of them none. `tunnels`: the agent opens a tunnel if Welcome asks for one.
    `saves`: an attempt here can go on from a save. `yields`: an attempt here can be asked to yield.
    `credential` is of a node that joins again, and proves that the id is its own."""

    protocol: int
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
    gateway: GatewayAddress | None = None
    jobs_ahead: int = 0
    direct: DirectGateway | None = None
    tunnels: bool = False
    saves: bool = False
    yields: bool = False
    credential: str = field(repr=False, default="")


@record(frozen=True, slots=True)
class Beat:
    """The message that an agent is alive. `facts`: those of Hello that have changed since."""

    number: int
    samples: tuple[DeviceSample, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@record(frozen=True, slots=True)
class Progress:
    job: str
    attempt: int
    value: bytes


@record(frozen=True, slots=True)
class Chunk:
    """A chunk of partial output. A chunk over 1 MB is the object `ref`, and `value` is empty."""

    job: str
    attempt: int
    n: int
    value: bytes
    ref: Ref | None = None


@record(frozen=True, slots=True)
class Save:
    """The state from which a later attempt goes on; it covers the chunks before `upto`, which were reported
    before it. A save over 48 KiB is the object `ref`, and `state` is empty. Saves of an attempt are numbered
    by `n`. `content`: the image or the source that made the save, by digest; empty where that is not
    known."""

    job: str
    attempt: int
    n: int
    upto: int
    state: bytes = field(repr=False, default=b"")
    ref: Ref | None = None
    content: str = ""


@record(frozen=True, slots=True)
class Uploading:
    """The handler has returned, and its results are being uploaded. `why`: the error of the last try, if
    any."""

    job: str
    attempt: int
    why: str = ""


@record(frozen=True, slots=True)
class Released:
    """The attempt no longer holds a slot of its worker."""

    job: str
    attempt: int


@record(frozen=True, slots=True)
class Span:
    """A priced measurement: `quantity` in `unit`, and its price in billionths of a US dollar."""

    kind: str
    unit: str
    quantity: int
    nano_usd: int


@record(frozen=True, slots=True)
class Artifact:
    key: str
    size: int
    sha256: str
    media_type: str


@record(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt. `save_gone`: the attempt failed before it began, since the save that it was
    to go on from cannot be had any more."""

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
    log_at_ms: tuple[int, ...] = ()
    save_gone: bool = False
    case: bytes = field(repr=False, default=b"")


@record(frozen=True, slots=True)
class WorkerState:
    """The state of a worker. `slots`: how many attempts the worker takes at once now; None while unknown.
    `serves`: what the worker says that it runs. `waits_for`: what its node does before it starts the worker,
    as a sentence about the node; empty while it does nothing. `cold_start`: the stages of its start, in
    order; empty until it is ready."""

    worker: str
    endpoint: str
    version: int
    state: str
    reason: str = ""
    log_tail: tuple[str, ...] = ()
    slots: int | None = None
    serves: str = ""
    waits_for: str = ""
    cold_start: tuple[StartStage, ...] = ()


@record(frozen=True, slots=True)
class Refused:
    """The agent could not take this Assign, or gives it back; the attempt is not counted. `at_once`: it needs
    no pause before it is assigned again: the node is about to leave, it only waited for its worker, or
    that is not ready, as was reported before."""

    job: str
    attempt: int
    reason: str
    at_once: bool = False


@record(frozen=True, slots=True)
class PortMapping:
    """A port of a pod, and the host's port that is mapped to it."""

    private: int
    public: int
    protocol: str


@record(frozen=True, slots=True)
class PodState:
    """The state of a pod's container, from the engine. `version` and `restarts` are those of the PodSpec that
    this state answers."""

    pod: str
    version: int
    restarts: int
    state: str
    reason: str = ""
    ports: tuple[PortMapping, ...] = ()
    exit_code: int | None = None
    started_ms: int | None = None
    log_tail: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class VolumeUsed:
    """The size of a network volume on this node. `gone`: its folder was removed, as requested."""

    volume: str
    used_bytes: int
    gone: bool = False


@record(frozen=True, slots=True)
class Usage:
    """A period in which a worker or a pod held its devices in one state. Control computes its cost. Periods
    of one owner do not overlap, and (owner, boot, n) identifies a period: one that is reported again is the
    same.

    `kind` is "worker" or "pod". The `state` of a worker is starting, running (it has a job) or idle; that of
    a pod is running. Times are milliseconds since the epoch: the start is read from the node's clock, and the
    length is measured with a monotonic clock.
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


CASE_MAX = 64 * 1024
"""The most bytes of what a worker notes for the case of a job."""

WANTED_MOST = 100
"""The most requests in one SignAsk."""


@record(frozen=True, slots=True)
class Wanted:
    """A request to the platform's object store that an agent wants signed.

    `verb`: put (an object of `size` bytes with this `sha256`), start (a multipart upload of one), part
    (number `part` of the upload `upload`, of `size` bytes), finish or drop (that upload), read (the job's own
    input, or its save), link (a URL with which a caller reads the object). `name` is the file name for the
    caller.
    """

    verb: str
    key: str
    size: int = 0
    media_type: str = ""
    name: str = ""
    sha256: str = ""
    upload: str = ""
    part: int = 0


@record(frozen=True, slots=True)
class SignAsk:
    """A request for signatures, answered by the SignAnswer of the same number, in the same session. Sending
    it twice has no effect."""

    number: int
    job: str
    attempt: int
    wanted: tuple[Wanted, ...] = ()


@record(frozen=True, slots=True)
class KeptAsk:
    """A request for the chunks `first` to `upto` - 1 of a job, which the save of this attempt covers. It is
    answered by the KeptPage of the same number, in the same session. Sending it twice has no effect."""

    number: int
    job: str
    attempt: int
    first: int
    upto: int


ReportBody: TypeAlias = (
    Progress
    | Chunk
    | Save
    | Uploading
    | Outcome
    | Released
    | WorkerState
    | Refused
    | PodState
    | VolumeUsed
    | Usage
)


@record(frozen=True, slots=True)
class Report:
    number: int
    body: ReportBody


@record(frozen=True, slots=True)
class FromAgent:
    hello: Hello | None = None
    beat: Beat | None = None
    reports: tuple[Report, ...] = ()
    draining: bool = False
    asks: tuple[SignAsk, ...] = ()
    source_asks: tuple[str, ...] = ()
    certificate_ask: bytes = b""
    kept_asks: tuple[KeptAsk, ...] = ()
