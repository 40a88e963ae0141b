"""Messages from the control plane to an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from stoker.wire.messages.shared import AttemptKey, Ref
from stoker.wire.messages.weights import LockedWeights
from stoker.wire.records import record


@record(frozen=True, slots=True)
class Welcome:
    """The answer to a Hello that control accepts. `keep` and `stop`: the attempts of the Hello that go on,
    and those that must stop. `tunnel`: the agent shall open a tunnel. `saves`: this control takes saves; one
    from before there were any ends the session of an agent that reports one. `yields`: this control knows
    attempts that yield. `certifies`: this control signs the certificates of nodes. `kept`: it answers a
    KeptAsk."""

    session: int
    beat_s: float
    lease_s: float
    keep: tuple[AttemptKey, ...] = ()
    stop: tuple[AttemptKey, ...] = ()
    tunnel: bool = False
    saves: bool = False
    yields: bool = False
    certifies: bool = False
    kept: bool = False


@record(frozen=True, slots=True)
class Refusal:
    reason: str


@record(frozen=True, slots=True)
class WorkerLimits:
    """Limits of one worker with all its processes. None: the node's own limit, if it has one."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    files: int | None = None


@record(frozen=True, slots=True)
class RegistryAuth:
    """The login that an image is pulled with. The password is never logged."""

    username: str
    password: str = field(repr=False, default="")


@record(frozen=True, slots=True)
class Source:
    """The files of a handler (`wire.source_archive`). `folder` is a path of control's host; the handler is in
    it, or is the folder. Without a `digest` control does not send them, and `refusal` says why."""

    folder: str
    digest: str
    refusal: str = ""


@record(frozen=True, slots=True)
class SourceAnswer:
    """An archive of the source of this digest, or a `refusal`."""

    digest: str
    archive: bytes = field(repr=False, default=b"")
    refusal: str = ""


@record(frozen=True, slots=True)
class WorkerSpec:
    """The specification of a worker. `kind` is "python", "protocol" or "http". Those of the latter two are
    `command`, started in the folder `handler`, or without one in the worker's home.

    `preload` names modules: the worker may be forked from a zygote that has imported them. With an `image`,
    the worker is a container: `handler` is a path in it, and an empty `command` or `entrypoint` means the
    image's own; for a python worker, `command` is the interpreter. `volume` names a folder below the node's
    volume root. An idle worker is replaced after `max_jobs` jobs, and once its memory has grown by
    `max_growth_bytes` since it was ready. `share` is its part of the GPU's memory, if other workers use the
    GPU too; it is not enforced. `hidden` are the secrets in `env`: no log shows them. `weights` are on the
    node before the worker starts; an agent that does not know of them starts it without. `source` are the
    files of a handler; an agent that does not know of them takes `handler` for a path of its own host.
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
    weights: tuple[LockedWeights, ...] = ()
    source: Source | None = None


@record(frozen=True, slots=True)
class PodPort:
    """A port of a pod. `protocol` is http, tcp or udp."""

    private: int
    protocol: str


@record(frozen=True, slots=True)
class PodSpec:
    """A container that runs for its user, not for jobs. `wish` is RUNNING, EXITED or TERMINATED. Pods that
    are not listed do not change.

    If `version` changes, the container is created again, and the pod's own volume stays. If `restarts` rises,
    the same container is started again. `volume` is a network volume, mounted at `volume_path`; without one,
    the pod has a volume of its own there, which lasts until the pod is TERMINATED. Byte sizes are limits, if
    the engine can enforce them.
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


@record(frozen=True, slots=True)
class VolumeSpec:
    """A network volume of this node, which the agent measures. `gone`: its folder must be removed."""

    volume: str
    size_bytes: int
    gone: bool = False


@record(frozen=True, slots=True)
class Desired:
    revision: int
    workers: tuple[WorkerSpec, ...] = ()
    pods: tuple[PodSpec, ...] = ()
    volumes: tuple[VolumeSpec, ...] = ()


@record(frozen=True, slots=True)
class Ack:
    report: int
    beat: int = 0


@record(frozen=True, slots=True)
class Signed:
    """A signed request: anybody may send it, with these headers, until it expires. It is never logged."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


@record(frozen=True, slots=True)
class SignAnswer:
    """The signed requests in the order of the SignAsk; or why nothing is signed, and whether to ask again."""

    number: int
    refusal: str = ""
    retryable: bool = False
    signed: tuple[Signed, ...] = ()


@record(frozen=True, slots=True)
class KeptPage:
    """The chunks that a KeptAsk begins with, at least one: `values` of 4 MiB together, or the object `ref` of
    the first one. Or why there are none, and whether to ask again."""

    number: int
    refusal: str = ""
    retryable: bool = False
    values: tuple[bytes, ...] = field(repr=False, default=())
    ref: Ref | None = None


@record(frozen=True, slots=True)
class Grant:
    """The right to write below one prefix of one bucket, for one attempt of an account's job.

    For a caller's own bucket, it contains the caller's credentials, which are never logged. For the
    platform's store it contains none: control signs each request. `key` is the id of the API key that
    submitted the job: waits are shared by it, and by the endpoint.
    """

    endpoint_url: str
    public_endpoint: str
    region: str
    bucket: str
    prefix: str
    access_id: str
    access_secret: str = field(repr=False, default="")
    guarded: bool = False
    account: str = ""
    job: str = ""
    attempt: int = 0
    key: str = ""
    endpoint: str = ""

    @property
    def signed(self) -> bool:
        return not self.access_id


@record(frozen=True, slots=True)
class Price:
    """The price of one unit of `metric`, which the handler measures, in billionths of a US dollar."""

    metric: str
    nano_usd: int


@record(frozen=True, slots=True)
class Saved:
    """The save that an attempt goes on from: its `state`, or the object `ref`. `upto`: how many chunks of the
    job are kept. `content`: the image or the source that made it, by digest; empty where any may go on from
    the save."""

    upto: int
    state: bytes = field(repr=False, default=b"")
    ref: Ref | None = None
    content: str = ""


@record(frozen=True, slots=True)
class Assign:
    """The assignment of an attempt to a worker. `private_inputs`: the handler may fetch inputs from private
    addresses. `traceparent`: the span that is the parent of what the handler does; empty where the job is in
    no trace. `saved`: None for an attempt that begins anew. `keeps_case`: if the job fails, its case is kept,
    so the worker notes what it runs on. `stop_after`: the worker stops the attempt after so many reports of
    progress and chunks; 0: it does not."""

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
    traceparent: str = ""
    saved: Saved | None = None
    keeps_case: bool = False
    stop_after: int = 0


@record(frozen=True, slots=True)
class Cancel:
    job: str
    attempt: int
    reason: str


@record(frozen=True, slots=True)
class Yield:
    """A request to an attempt to give up its place at its next save. One that does not save runs on.
    `reason` ends the sentence "yielded: …"."""

    job: str
    attempt: int
    reason: str


@record(frozen=True, slots=True)
class CertificateAnswer:
    """The certificate of a node, and all authorities that the node must trust from now on (PEM); or a
    `refusal`."""

    certificate: bytes = b""
    authorities: bytes = b""
    refusal: str = ""


@record(frozen=True, slots=True)
class FromControl:
    """A message of control to an agent. `credential` answers a Hello with a join token, alone or with a
    certificate: the node reconnects with them."""

    welcome: Welcome | None = None
    refusal: Refusal | None = None
    desired: Desired | None = None
    ack: Ack | None = None
    assigns: tuple[Assign, ...] = ()
    cancels: tuple[Cancel, ...] = ()
    stopping: bool = False
    answers: tuple[SignAnswer, ...] = ()
    credential: str | None = field(default=None, repr=False)
    sources: tuple[SourceAnswer, ...] = ()
    yields: tuple[Yield, ...] = ()
    certificate: CertificateAnswer | None = None
    kept: KeptPage | None = None
