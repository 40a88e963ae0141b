"""Runs one worker in a container and implements WorkerProcess, from pulling the image to removing the
container.

    image (pulled, pinned) -> created -> started -> ended: frames and log drained -> removed -> on_exit, once
         a step fails, or the worker is killed meanwhile ---------------------------^

- A python worker's runtime connects to a socket in a folder that only its container mounts. Frames sent
  before that wait here. Frames and descriptors pass as they do for a plain process.
- The worker ends when the container ends. All its processes end with it, since they share a pid namespace.
- Output by way of the engine arrives a moment late. A python worker's runtime therefore receives a pipe for
  its output, with the first byte on the socket, so everything that a job printed has arrived when the job
  ends. A protocol worker's program prints to the engine: the end of its job waits a moment for the last lines
  (`agent.workers.sdk_programs.worker`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from msgspec import Struct

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs.tail import LogPipe, LogTail, log_pipe
from stoker.agent.host.own_network import NoEntry, OwnNetwork
from stoker.agent.interfaces import WorkerExit, WorkerWatcher
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.errors import EngineError
from stoker.agent.workers.containers.images import Images, wanted_by
from stoker.agent.workers.containers.plan import SOCKET, ContainerExit, ContainerPlan, describe_container_exit
from stoker.agent.workers.processes.frame_socket import FrameSocket
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)

PRINT_HERE = b"p"
"""The byte that carries the pipe for the runtime's output."""

NEVER_RAN = 125
"""The exit status of a container that could not be started, as in the docker command."""

LOST = 255
"""The exit status if the engine was lost, or did not know the container any more, before it reported an
end."""

KILL_AGAIN_S = 5.0
"""How often SIGKILL is repeated: an engine that hangs or is starting may lose a signal."""

SIGNALS_S = 10.0
"""How long pending signals are waited for: podman never answers one whose container was removed meanwhile."""


class Container(Struct, frozen=True):
    """The container to run: `plan` takes the id of its image. `folder` holds the socket for its frames. If
    its program is called inside its own network, `on_network` is called with that."""

    spec: WorkerSpec
    plan: Callable[[str], ContainerPlan]
    name: str
    folder: Path | None
    memory_bytes: int | None
    gpus: int = 0
    on_network: Callable[[OwnNetwork], None] | None = None


class ContainerProcess:
    """The worker's container; `ended` is done after `on_exit` was called."""

    def __init__(
        self,
        container: Container,
        engine: ContainerEngine,
        images: Images,
        watcher: WorkerWatcher,
        tail: LogTail,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._container, self._engine, self._images = container, engine, images
        self._watcher = watcher
        self._frames: FrameListener | None = None
        if container.folder is not None:
            self._frames = FrameListener(container.folder, self._loop, watcher.on_frame, watcher.on_broken)
        self.tail = tail
        self._id, self.image_id = "", ""
        self._over = False
        self._killed: str | None = None
        self._terminated = False
        self._stopped = self._loop.create_future()  # by a signal before it ran
        self._no_signals = self._loop.create_future()  # it has ended, or is being removed
        self._abandoned = self._loop.create_future()
        self._signals: set[asyncio.Task[None]] = set()
        self._pipe: LogPipe | None = None
        self._network: OwnNetwork | None = None
        self.ended = self._loop.create_task(self._live(), name=f"container of {container.spec.worker}")

    @property
    def pid(self) -> int:
        """0: the agent cannot signal a process of the container directly."""
        return 0

    @property
    def alive(self) -> bool:
        return not self._over

    def send(self, frame: Frame) -> None:
        if self._frames is not None and not self._over:
            self._frames.send(frame)

    def pause(self) -> None:
        if self._frames is not None:
            self._frames.pause()

    def resume(self) -> None:
        if self._frames is not None:
            self._frames.resume()

    def terminate(self) -> None:
        if not self._over:
            self._terminated = True
            self._signal("SIGTERM")

    def kill(self) -> None:
        self._kill("killed by the agent")

    def give_up(self) -> None:
        """Ends without waiting for the engine. A later agent removes the container."""
        if not self._abandoned.done():
            self._abandoned.set_result(None)

    def _kill(self, why: str) -> None:
        if not self._over and self._killed is None:
            self._killed = why
            self._signal("SIGKILL")

    def _signal(self, name: str) -> None:
        if not self._id:
            if not self._stopped.done():
                self._stopped.set_result(None)
            return
        if self._no_signals.done():  # an engine may not answer for one that is being removed
            return
        sent = self._engine.signal(self._id, name) if name != "SIGKILL" else self._kill_until_it_ends()
        task = self._loop.create_task(sent)
        self._signals.add(task)
        task.add_done_callback(self._signals.discard)

    async def _kill_until_it_ends(self) -> None:
        while not self._no_signals.done():
            await self._engine.signal(self._id, "SIGKILL")
            await asyncio.wait({self._no_signals}, timeout=KILL_AGAIN_S)

    # -- its life

    async def _live(self) -> None:
        running = self._loop.create_task(self._end())
        await asyncio.wait({running, self._abandoned}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            status, reason = running.result()
        else:
            running.cancel()
            status, reason = LOST, "the agent ended, and its container engine did not answer"
        self._over = True
        if self._pipe is not None:
            self._pipe.finish()
        self.tail.close()
        if self._frames is not None:
            self._frames.finish()
        self._watcher.on_exit(WorkerExit(status, reason, self.tail.lines))
        if self._network is not None:
            self._network.close()

    async def _end(self) -> tuple[int, str]:
        container = f"the container of worker {self._container.spec.worker}"
        try:
            return await self._run()
        except (EngineError, OSError) as error:
            return NEVER_RAN, f"{container} cannot be run: {error}"
        except Exception as error:  # the watcher must receive an end, whatever went wrong
            log.exception("%s", container)
            return NEVER_RAN, f"{container} cannot be run: {error!r}"

    async def _run(self) -> tuple[int, str]:
        image = await self._unless_stopped(self._images.resolve(wanted_by(self._container.spec)))
        if image is None:
            return self._stopped_early()
        self.image_id = image
        container = await self._engine.create(self._container.plan(image), self._container.name)
        try:
            return await self._created(container)
        finally:
            self._no_signals.set_result(None)
            if self._signals:
                await asyncio.wait(self._signals, timeout=SIGNALS_S)
            with contextlib.suppress(EngineError):
                await self._engine.remove(container)

    async def _created(self, container: str) -> tuple[int, str]:
        if self._stopped.done():
            return self._stopped_early()
        log_read, log_write = log_pipe()
        self._pipe = LogPipe(log_read, self._loop, self.tail)
        if self._frames is not None:
            self._frames.print_to(os.dup(log_write))
        ended = await self._engine.start(container, log_write)
        self._id = container
        await self._enter(container)
        if self._stopped.done():  # while it was being started
            self._signal("SIGKILL" if self._killed else "SIGTERM")
        wanted = self._container.gpus
        if wanted and (why := await self._engine.missing_gpu(container, wanted)) is not None:
            self._kill(f"{why}, and was killed")
        try:
            return self._describe(await ended)
        except EngineError as gone:
            return LOST, f"the container of worker {self._container.spec.worker} was lost: {gone}"

    async def _enter(self, container: str) -> None:
        """Hands out the container's network, if that is called inside; a container that cannot be entered is
        killed."""
        if self._container.on_network is None:
            return
        try:
            self._network = await self._engine.network(container)
            self._container.on_network(self._network)
        except (EngineError, NoEntry) as why:
            self._kill(f"{why}, and was killed")

    async def _unless_stopped(self, work: Coroutine[Any, Any, str]) -> str | None:
        task = asyncio.ensure_future(work)
        await asyncio.wait({task, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task})
        return None

    def _stopped_early(self) -> tuple[int, str]:
        """Describes the end as if the signal had reached a running container."""
        return self._describe(ContainerExit(128 + (signal.SIGKILL if self._killed else signal.SIGTERM)))

    def _describe(self, ended: ContainerExit) -> tuple[int, str]:
        memory_bytes = self._container.memory_bytes
        return describe_container_exit(
            ended, self._killed, terminated=self._terminated, memory_bytes=memory_bytes
        )


class FrameListener:
    """Listens for the one connection of the runtime in the container, and keeps frames that are sent before.
    `print_to` must be called before the container starts."""

    def __init__(
        self,
        folder: Path,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[Frame], None],
        on_broken: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._callbacks = on_frame, on_broken
        self._frames: FrameSocket | None = None
        self._unsent: list[Frame] = []
        self._log_write: int | None = None
        self._paused = False
        self._listener: socket.socket | None = _listen(folder)
        loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if self._log_write is not None:
            with contextlib.suppress(OSError):  # it has ended
                socket.send_fds(sock, [PRINT_HERE], [self._log_write])
        self._close_listener()
        self._frames = FrameSocket(sock, self._loop, *self._callbacks)
        if self._paused:
            self._frames.pause()
        for frame in self._unsent:
            self._frames.send(frame)
        self._unsent.clear()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        if self._log_write is not None:
            os.close(self._log_write)
            self._log_write = None

    def print_to(self, log_write: int) -> None:
        """Takes over a pipe for the runtime's output, and closes it."""
        self._log_write = log_write

    def send(self, frame: Frame) -> None:
        if self._frames is not None:
            self._frames.send(frame)
        elif self._listener is not None:
            self._unsent.append(frame)

    def pause(self) -> None:
        self._paused = True
        if self._frames is not None:
            self._frames.pause()

    def resume(self) -> None:
        self._paused = False
        if self._frames is not None:
            self._frames.resume()

    def finish(self) -> None:
        """Delivers the frames that the container sent before its end, then closes."""
        self._close_listener()
        if self._frames is not None:
            self._frames.finish()


def _listen(folder: Path) -> socket.socket:
    """Binds by way of a descriptor, because the path of the folder may be too long for a socket."""
    made = socket.socket(socket.AF_UNIX)
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            made.bind(f"/proc/self/fd/{fd}/{SOCKET}")
        finally:
            os.close(fd)
        os.chmod(folder / SOCKET, 0o666)  # the folder is its container's alone
        made.listen(1)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise SpawnFailed(f"no socket for a container: {error.strerror}") from None
    return made
