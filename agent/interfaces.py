"""Everything the agent's shell touches outside itself, as Protocols that are injected.

The real ones: `agent.local_process` and its neighbours (Spawner), `agent.objects` (Objects), `agent.devices`
(Sampler), `agent.device_watch` (DeviceGate, MemoryCheck), `agent.files` (Scratch), `agent.outbox_disk`
(OutboxDisk), `agent.input_cache` (Inputs), `agent.grpc_stream` (the stream). Fakes with the same promises
ship too (`agent.fake_spawner`, …), for the tests and the simulation. Rules for all of them:

- they are called on the loop's thread, and call back on it; threads stay inside an adapter;
- nothing that must be true after a crash may depend on `close` or on a `finally` being run;
- durations are `loop.time()`, never the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from stoker.agent.device_health import Look
from stoker.wire.messages import Artifact, AttemptKey, Device, Grant, Ref, WorkerSpec
from stoker.worker.frames import Frame


class SpawnFailed(Exception):
    """A worker process could not be started; the text is a sentence for the operator."""


class FileRefused(Exception):
    """A handler's file may not be uploaded; the text is a sentence for the caller."""


class AgentRefused(Exception):
    """Control refuses this node; the text is control's sentence. Trying again would change nothing."""


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """`status` as subprocess gives it (negative = signal), `reason` in words, the last lines it printed."""

    status: int
    reason: str
    log_tail: tuple[str, ...] = ()


class WorkerWatcher(Protocol):
    """Hears a worker process. `on_exit` comes exactly once, after the last frame and after the reaping."""

    def on_frame(self, frame: Frame) -> None: ...

    def on_exit(self, exit: WorkerExit) -> None: ...  # noqa: A002  # the word of the domain


class Listener(Protocol):
    """What a worker has printed since this was made, as far as it is remembered. Each call reads first what
    waits to be read. It may be called after the worker's death, too. `agent.log_tail.Heard` implements it."""

    def lines(self) -> tuple[int, tuple[str, ...]]:
        """The last lines, one without an end included; and how many came before them."""

    def after(self, place: int, *, whole: bool = True) -> tuple[int, tuple[str, ...]]:
        """The lines from `place` on, counted from 0, and the place of the first of them: a later one where
        some are gone. With `whole`, a line that has no end yet waits."""

    def watch(self, rings: Callable[[], None]) -> Callable[[], None]:
        """`rings` is called after new lines, until what is returned here is called; more are remembered."""


class WorkerProcess(Protocol):
    """One running worker process with everything it started."""

    @property
    def pid(self) -> int: ...

    def send(self, frame: Frame) -> None:
        """Buffered, never blocks; silently dropped after death."""

    def listen(self) -> Listener:
        """To what it prints from now on. Never blocks."""

    def terminate(self) -> None:
        """SIGTERM to the process group. Nothing after death."""

    def kill(self) -> None:
        """SIGKILL of everything the handler started. Nothing after death."""

    def pause(self) -> None:
        """Read no further frames until `resume`."""

    def resume(self) -> None: ...


class Spawner(Protocol):
    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> WorkerProcess:
        """Start the process; it sends nothing by itself, the `setup` frame is the caller's to send. `device`
        is the first of the spec's: all of a worker's devices are of one kind.

        Returns at once and calls no watcher before it has returned. Raises SpawnFailed.
        """

    async def close(self) -> None:
        """Kill and reap whatever is left."""


class Objects(Protocol):
    """The object store. Raises the errors of outbound.errors: what is `retryable` may be tried again."""

    async def put_file(self, grant: Grant, key: str, fd: int, media_type: str, name: str) -> Artifact:
        """Upload the whole file from its start. Works on a duplicate of `fd`, made before the first await:
        the caller may close its own, or cancel this call, at any time."""

    async def put_bytes(self, grant: Grant, key: str, data: bytes, media_type: str) -> Ref: ...

    async def get(self, grant: Grant, ref: Ref) -> bytes: ...

    def url(self, grant: Grant, key: str) -> str:
        """Presigned for 7 days, on the grant's public endpoint."""


class Sampler(Protocol):
    def inventory(self) -> tuple[Device, ...]: ...

    async def look(self) -> tuple[Look, ...]:
        """One look at every device, in a deadline of its own."""

    async def memory_used(self, uuid: str) -> int | None:
        """Bytes in use now, in the same deadline; None when the driver does not say."""

    async def memory_held(self, uuid: str, pids: Collection[int]) -> int | None:
        """Bytes of it that these processes hold; None when the driver does not say it of each process."""

    def listen(self, hear: Callable[[str, int], None]) -> None:
        """From now on `hear(device, Xid)` is called on the loop's thread. To be called once."""


class DeviceGate(Protocol):
    """Whether work may be given to devices, and what their workers tell of them: see agent.device_watch."""

    def closed(self, devices: Sequence[str]) -> bool:
        """No process may be started there now. Its worker is started once one may."""

    def started(self, worker: str, devices: Sequence[str]) -> None: ...

    def ready(self, worker: str, devices: Sequence[str]) -> None: ...

    def ended(self, worker: str, devices: Sequence[str]) -> None:
        """Its process was reaped."""


class Occupant(Protocol):
    """A worker, as far as its device goes. `running` are the attempts that hold its slots."""

    @property
    def name(self) -> str: ...

    @property
    def running(self) -> set[AttemptKey]: ...

    def kill(self, why: str) -> None: ...

    def start_if_waiting(self) -> None: ...


class MemoryCheck(Protocol):
    """What a stopped job has left in its device's memory: see agent.device_watch."""

    def checks(self, worker: Occupant, devices: Sequence[str]) -> bool:
        """Whether that can be told of this worker."""

    async def unclean(self, worker: str, devices: Sequence[str]) -> str:
        """What is left, in words; empty when its worker may take the next job."""


class Scratch(Protocol):
    """A folder for each attempt, made before it runs and removed after it has left its worker."""

    def make(self, key: AttemptKey, worker: str = "") -> str:
        """For that worker. Idempotent. Raises OSError when the disk is full."""

    def remove(self, key: AttemptKey) -> None:
        """Idempotent, and never raises."""

    def check(self, key: AttemptKey, fd: int) -> int:
        """The size of the file behind `fd`, when the handler may hand it over (regular, below this attempt's
        folder, the worker's own: see agent.files). Raises FileRefused."""


class OutboxDisk(Protocol):
    """One file, replaced as a whole and durable when `save` returns. A torn one loads as None."""

    def save(self, data: bytes) -> None:
        """Raises OSError when the disk is full."""

    def save_soon(self, data: Callable[[], bytes], done: Callable[[Exception | None], None]) -> None:
        """The same beside the caller, who is told on the loop's thread. Of two saves under way the later
        stays."""

    def load(self) -> bytes | None: ...


class InputRefused(Exception):
    """A URL input cannot be had; the text is a sentence for the caller. `reason` is a word for the handler:
    scheme, malformed, private_address, redirect, too_large, too_slow, not_found, http_status, unreachable,
    bad_answer, too_many, no_room, over."""

    def __init__(self, reason: str, text: str, *, retryable: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class InputWish:
    """`private`: the operator lets jobs reach private addresses."""

    url: str
    max_bytes: int
    timeout_s: float
    private: bool


@dataclass(frozen=True, slots=True)
class FetchedInput:
    """`fd` is open for reading, from its start, and its holder's to close."""

    fd: int
    size: int
    sha256: str


class Inputs(Protocol):
    """What lies at the URLs that jobs were given."""

    async def fetch(self, wish: InputWish) -> FetchedInput:
        """Raises InputRefused."""
