"""Messages from an agent to the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from stoker.wire.messages.shared import AttemptKey, Device, DeviceSample, Ref
from stoker.wire.records import Hiding


class StartStage(Struct, frozen=True):
    """A stage of a worker's start, from what it waited for until it was ready, and how long it took."""

    name: str
    took_ms: int


class HeldWorker(Struct, frozen=True):
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


class HeldAttempt(Struct, frozen=True):
    job: str
    attempt: int
    worker: str
    phase: str

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job, self.attempt)


class HeldPod(Struct, frozen=True):
    """A pod that a node has. `version` and `restarts` are those of the PodSpec that the container was made
    and last started for."""

    pod: str
    version: int
    restarts: int
    state: str


class GatewayAddress(Hiding, frozen=True):
    """The way for control on the same host to the http workers of a node: HTTP CONNECT to a worker's name at
    this port, with the token as bearer. The address is the one that the session comes from. `namespace`: the
    network namespace that the address is in (`wire.network_namespace`)."""

    HIDDEN = ("token",)

    port: int
    token: str
    namespace: str = ""


class DirectGateway(Hiding, frozen=True):
    """The way for control on another host to the http workers of a node: as GatewayAddress, but over TLS,
    with this `certificate` (DER) and no other. `host` is an IP address; empty: the address that the session
    comes from."""

    HIDDEN = ("token", "certificate")

    host: str
    port: int
    token: str
    certificate: bytes


class Hello(Hiding, frozen=True):
    """The first message of a session. `jobs_ahead`: how many jobs may lie ahead of a worker that runs one; of
    an agent that does not know of them none. `tunnels`: the agent opens a tunnel if Welcome asks for one.
    `saves`: an attempt here can go on from a save. `yields`: an attempt here can be asked to yield.
    `credential` is of a node that joins again, and proves that the id is its own."""

    HIDDEN = ("credential",)

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
    credential: str = ""


class Beat(Struct, frozen=True):
    """The message that an agent is alive. `facts`: those of Hello that have changed since."""

    number: int
    samples: tuple[DeviceSample, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


class Progress(Struct, frozen=True):
    job: str
    attempt: int
    value: bytes


class Chunk(Struct, frozen=True):
    """A chunk of partial output. A chunk over 1 MB is the object `ref`, and `value` is empty."""

    job: str
    attempt: int
    n: int
    value: bytes
    ref: Ref | None = None


class Save(Hiding, frozen=True):
    """The state from which a later attempt goes on; it covers the chunks before `upto`, which were reported
    before it. A save over 48 KiB is the object `ref`, and `state` is empty. Saves of an attempt are numbered
    by `n`. `content`: the image or the source that made the save, by digest; empty where that is not
    known."""

    HIDDEN = ("state",)

    job: str
    attempt: int
    n: int
    upto: int
    state: bytes = b""
    ref: Ref | None = None
    content: str = ""


class Uploading(Struct, frozen=True):
    """The handler has returned, and its results are being uploaded. `why`: the error of the last try, if
    any."""

    job: str
    attempt: int
    why: str = ""


class Released(Struct, frozen=True):
    """The attempt no longer holds a slot of its worker."""

    job: str
    attempt: int


class Span(Struct, frozen=True):
    """A priced measurement: `quantity` in `unit`, and its price in billionths of a US dollar."""

    kind: str
    unit: str
    quantity: int
    nano_usd: int


class Artifact(Struct, frozen=True):
    key: str
    size: int
    sha256: str
    media_type: str


class Outcome(Hiding, frozen=True):
    """The outcome of an attempt. `save_gone`: the attempt failed before it began, since the save that it was
    to go on from cannot be had any more."""

    HIDDEN = ("case",)

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
    case: bytes = b""


class WorkerState(Struct, frozen=True):
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


class Refused(Struct, frozen=True):
    """The agent could not take this Assign, or gives it back; the attempt is not counted. `at_once`: it needs
    no pause before it is assigned again: the node is about to leave, it only waited for its worker, or
    that is not ready, as was reported before."""

    job: str
    attempt: int
    reason: str
    at_once: bool = False


class PortMapping(Struct, frozen=True):
    """A port of a pod, and the host's port that is mapped to it."""

    private: int
    public: int
    protocol: str


class PodState(Struct, frozen=True):
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


class VolumeUsed(Struct, frozen=True):
    """The size of a network volume on this node. `gone`: its folder was removed, as requested."""

    volume: str
    used_bytes: int
    gone: bool = False


class Usage(Struct, frozen=True):
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


class Wanted(Struct, frozen=True):
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


class SignAsk(Struct, frozen=True):
    """A request for signatures, answered by the SignAnswer of the same number, in the same session. Sending
    it twice has no effect."""

    number: int
    job: str
    attempt: int
    wanted: tuple[Wanted, ...] = ()


class KeptAsk(Struct, frozen=True):
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


class Report(Struct, frozen=True):
    number: int
    body: ReportBody


class FromAgent(Struct, frozen=True):
    hello: Hello | None = None
    beat: Beat | None = None
    reports: tuple[Report, ...] = ()
    draining: bool = False
    asks: tuple[SignAsk, ...] = ()
    source_asks: tuple[str, ...] = ()
    certificate_ask: bytes = b""
    kept_asks: tuple[KeptAsk, ...] = ()
