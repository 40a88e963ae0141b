"""Everything the agent's shell touches outside itself, as Protocols that are injected.

The real ones: `agent.workers.processes.local_spawner` and its neighbours (Spawner),
`agent.jobs.uploads.objects` (Objects), `agent.workers.processes.scratch_folders` (Scratch),
`agent.jobs.reports.outbox_file` (OutboxDisk), `agent.jobs.inputs.cache` (Inputs), `agent.link.grpc_stream`
(the stream). Those of devices and pods are `agent.host.devices.interfaces` and `agent.pods.interfaces`. The
fakes in `testing` keep the same promises, for the tests and the simulation. Rules for all of them:

- they are called on the loop's thread, and call back on it; threads stay inside an adapter;
- nothing that must be true after a crash may depend on `close` or on a `finally` being run;
- durations are `loop.time()`, never the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from stoker.agent.host.logs.tail import LogTail
from stoker.outbound.wait_limits import NOBODY, Waiter
from stoker.wire.messages import Artifact, AttemptKey, CertificateAnswer, Device, Grant, Ref, WorkerSpec
from stoker.worker.frames import Frame


class FileRefused(Exception):
    """A handler's file may not be uploaded; the text is for the caller."""


class WorkerExit(Struct, frozen=True):
    """The end of a worker's process. `status` as subprocess gives it (negative = signal), the reason, and the
    last lines that it printed."""

    status: int
    reason: str
    log_tail: tuple[str, ...] = ()


class WorkerWatcher(Protocol):
    """Is called by a worker process. `on_exit` is called exactly once, after the last frame and the
    reaping."""

    def on_frame(self, frame: Frame) -> None:
        """Owns the frame, and closes its descriptor."""

    def on_broken(self, why: str) -> None:
        """Ends the process, which sent bytes that are not a frame; nothing more of its stream is read."""

    def on_exit(self, exit: WorkerExit) -> None: ...  # noqa: A002  # the word of the domain


class WorkerProcess(Protocol):
    """A running worker process with everything it started."""

    @property
    def pid(self) -> int: ...

    @property
    def alive(self) -> bool:
        """Returns whether the process has not ended yet. Its last frames may come after its end."""

    def send(self, frame: Frame) -> None:
        """Sends a frame from a buffer: never blocks, and drops the frame silently after the process's death.
        Raises FrameError for a frame over the limits, OSError where no descriptor is left to pass on what the
        frame carries."""

    @property
    def tail(self) -> LogTail:
        """Returns the log tail of what the process prints."""

    @property
    def image_id(self) -> str:
        """Returns the id of its container's image, once that is known; "" without a container."""

    def terminate(self) -> None:
        """Sends SIGTERM to the process group. Does nothing after death."""

    def kill(self) -> None:
        """Kills everything that the handler started. Does nothing after death."""

    def pause(self) -> None:
        """Reads no further frames until `resume`."""

    def resume(self) -> None: ...


class Spawner(Protocol):
    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> WorkerProcess:
        """Starts the process; the caller sends the `setup` frame. `device` is the first of the spec's: all of
        a worker's devices are of one kind.

        Returns at once and calls no watcher before it has returned. Raises SpawnFailed.
        """

    async def close(self) -> None:
        """Kills and reaps what is left."""


class Objects(Protocol):
    """The object store. Raises the errors of outbound.errors: what is `retryable` may be tried again."""

    async def try_bucket(self, grant: Grant) -> None:
        """Raises ObjectStoreRefused if the caller's own bucket would refuse the job's files. Returns soon: a
        store that is down, or slow, does not count as a refusal."""

    async def put_file(self, grant: Grant, key: str, fd: int, media_type: str, name: str) -> Artifact:
        """Uploads the whole file. Works on a duplicate of `fd`, made before the first await: the caller may
        close its own, or cancel this call, at any time."""

    async def put_bytes(self, grant: Grant, key: str, data: bytes, media_type: str) -> Ref: ...

    async def get(self, grant: Grant, ref: Ref) -> bytes: ...

    async def urls(self, grant: Grant, keys: Sequence[str]) -> list[str]:
        """Returns URLs of the keys, presigned for 7 days, on the store's public endpoint."""


class Scratch(Protocol):
    """A folder for each attempt, made when its handler requests it at the latest, and removed after it has
    left its worker."""

    def prepare(self, key: AttemptKey, worker: str = "") -> str:
        """Returns the path of the folder, which is made here if that worker cannot make it. Idempotent.
        Raises OSError when the disk is full."""

    def remove(self, key: AttemptKey) -> None:
        """Removes the attempt's folder. Idempotent; never raises."""

    def check(self, key: AttemptKey, fd: int) -> int:
        """Returns the size of the file behind `fd`, when the handler may hand it over (regular, below this
        attempt's folder, the worker's own: see `agent.workers.processes.scratch_folders`). Raises
        FileRefused, or worker_frames.BrokenProtocol."""


class OutboxDisk(Protocol):
    """A file that is replaced as a whole, and durable when `save` returns. A damaged file loads as None."""

    def save(self, data: bytes) -> None:
        """Raises OSError when the disk is full."""

    def save_soon(self, data: Callable[[], bytes], done: Callable[[Exception | None], None]) -> None:
        """Saves in a thread, which also calls `data`; `done` is called on the loop's thread. Of two saves at
        once the later stays."""

    def load(self) -> bytes | None: ...


class InputRefused(Exception):
    """A URL input cannot be fetched; the text is for the caller. `reason` is a word for the handler:
    scheme, malformed, private_address, redirect, too_large, too_slow, not_found, http_status, unreachable,
    bad_answer, too_many, no_room, over."""

    def __init__(self, reason: str, text: str, *, retryable: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.retryable = retryable


class InputRequest(Struct, frozen=True):
    """The request for one input. `private`: jobs may reach private addresses. `whose`: whose job it is.
    `own`: the URL is in the platform's own store."""

    url: str
    max_bytes: int
    timeout_s: float
    private: bool
    whose: Waiter = NOBODY
    own: bool = False


class FetchedInput(Struct, frozen=True):
    """The content of one input. `fd` is open for reading, at its start; the receiver closes it."""

    fd: int
    size: int
    sha256: str


class Inputs(Protocol):
    """Fetches the URLs in jobs' inputs."""

    async def fetch(self, wish: InputRequest) -> FetchedInput:
        """Raises InputRefused."""


class Certificates(Protocol):
    """The certificate of this node, which control signs."""

    def request(self) -> bytes:
        """Returns a request for a certificate, if one is due; else nothing."""

    def answered(self, answer: CertificateAnswer) -> None:
        """Keeps what control has signed, or notes why it has not."""


class NoCertificates:
    """Certificates of an agent that has none."""

    def request(self) -> bytes:
        return b""

    def answered(self, answer: CertificateAnswer) -> None:
        """Drops the answer, which nothing requested."""
