"""Messages from the control plane to an agent."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from stoker.wire.messages.shared import AttemptKey, Ref
from stoker.wire.messages.weights import LockedWeights
from stoker.wire.records import Hiding


class Welcome(Struct, frozen=True):
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


class Refusal(Struct, frozen=True):
    reason: str


class WorkerLimits(Struct, frozen=True):
    """Limits of one worker with all its processes. None: the node's own limit, if it has one."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    files: int | None = None


class RegistryAuth(Hiding, frozen=True):
    """The login that an image is pulled with. The password is never logged."""

    HIDDEN = ("password",)

    username: str
    password: str = ""


class Source(Struct, frozen=True):
    """The files of a handler (`wire.source_archive`). `folder` is a path of control's host; the handler is in
    it, or is the folder. Without a `digest` control does not send them, and `refusal` says why."""

    folder: str
    digest: str
    refusal: str = ""


class SourceAnswer(Hiding, frozen=True):
    """An archive of the source of this digest, or a `refusal`."""

    HIDDEN = ("archive",)

    digest: str
    archive: bytes = b""
    refusal: str = ""


class WorkerSpec(Hiding, frozen=True):
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

    HIDDEN = ("hidden",)

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
    hidden: tuple[str, ...] = ()
    weights: tuple[LockedWeights, ...] = ()
    source: Source | None = None


class PodPort(Struct, frozen=True):
    """A port of a pod. `protocol` is http, tcp or udp."""

    private: int
    protocol: str


class PodSpec(Hiding, frozen=True):
    """A container that runs for its user, not for jobs. `wish` is RUNNING, EXITED or TERMINATED. Pods that
    are not listed do not change.

    If `version` changes, the container is created again, and the pod's own volume stays. If `restarts` rises,
    the same container is started again. `volume` is a network volume, mounted at `volume_path`; without one,
    the pod has a volume of its own there, which lasts until the pod is TERMINATED. Byte sizes are limits, if
    the engine can enforce them.
    """

    HIDDEN = ("hidden",)

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
    hidden: tuple[str, ...] = ()


class VolumeSpec(Struct, frozen=True):
    """A network volume of this node, which the agent measures. `gone`: its folder must be removed."""

    volume: str
    size_bytes: int
    gone: bool = False


class Desired(Struct, frozen=True):
    revision: int
    workers: tuple[WorkerSpec, ...] = ()
    pods: tuple[PodSpec, ...] = ()
    volumes: tuple[VolumeSpec, ...] = ()


class Ack(Struct, frozen=True):
    report: int
    beat: int = 0


class Signed(Hiding, frozen=True):
    """A signed request: anybody may send it, with these headers, until it expires. It is never logged."""

    HIDDEN = ("url",)

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


class SignAnswer(Struct, frozen=True):
    """The signed requests in the order of the SignAsk; or why nothing is signed, and whether to ask again."""

    number: int
    refusal: str = ""
    retryable: bool = False
    signed: tuple[Signed, ...] = ()


class KeptPage(Hiding, frozen=True):
    """The chunks that a KeptAsk begins with, at least one: `values` of 4 MiB together, or the object `ref` of
    the first one. Or why there are none, and whether to ask again."""

    HIDDEN = ("values",)

    number: int
    refusal: str = ""
    retryable: bool = False
    values: tuple[bytes, ...] = ()
    ref: Ref | None = None


class Grant(Hiding, frozen=True):
    """The right to write below one prefix of one bucket, for one attempt of an account's job.

    For a caller's own bucket, it contains the caller's credentials, which are never logged. For the
    platform's store it contains none: control signs each request. `key` is the id of the API key that
    submitted the job: waits are shared by it, and by the endpoint.
    """

    HIDDEN = ("access_secret",)

    endpoint_url: str
    public_endpoint: str
    region: str
    bucket: str
    prefix: str
    access_id: str
    access_secret: str = ""
    guarded: bool = False
    account: str = ""
    job: str = ""
    attempt: int = 0
    key: str = ""
    endpoint: str = ""

    @property
    def signed(self) -> bool:
        return not self.access_id


class Price(Struct, frozen=True):
    """The price of one unit of `metric`, which the handler measures, in billionths of a US dollar."""

    metric: str
    nano_usd: int


class Saved(Hiding, frozen=True):
    """The save that an attempt goes on from: its `state`, or the object `ref`. `upto`: how many chunks of the
    job are kept. `content`: the image or the source that made it, by digest; empty where any may go on from
    the save."""

    HIDDEN = ("state",)

    upto: int
    state: bytes = b""
    ref: Ref | None = None
    content: str = ""


class Assign(Struct, frozen=True):
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


class Cancel(Struct, frozen=True):
    job: str
    attempt: int
    reason: str


class Yield(Struct, frozen=True):
    """A request to an attempt to give up its place at its next save. One that does not save runs on.
    `reason` ends the sentence "yielded: …"."""

    job: str
    attempt: int
    reason: str


class CertificateAnswer(Struct, frozen=True):
    """The certificate of a node, and all authorities that the node must trust from now on (PEM); or a
    `refusal`."""

    certificate: bytes = b""
    authorities: bytes = b""
    refusal: str = ""


class FromControl(Hiding, frozen=True):
    """A message of control to an agent. `credential` answers a Hello with a join token, alone or with a
    certificate: the node reconnects with them."""

    HIDDEN = ("credential",)

    welcome: Welcome | None = None
    refusal: Refusal | None = None
    desired: Desired | None = None
    ack: Ack | None = None
    assigns: tuple[Assign, ...] = ()
    cancels: tuple[Cancel, ...] = ()
    stopping: bool = False
    answers: tuple[SignAnswer, ...] = ()
    credential: str | None = None
    sources: tuple[SourceAnswer, ...] = ()
    yields: tuple[Yield, ...] = ()
    certificate: CertificateAnswer | None = None
    kept: KeptPage | None = None
