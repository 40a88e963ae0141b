"""One worker in a container: a WorkerProcess, from the image to what is left of it.

    image (pulled, pinned) -> created -> started -> ended: frames and log drained -> removed -> on_exit, once
         any of them fails, or it is killed meanwhile ------------------------------^

- A python worker's runtime connects to a socket in a folder that only its container has. What is sent before
  waits here. Frames and descriptors pass as they do for a plain process.
- Its end is the container's. Everything it started ends with it: they are one pid namespace.
- What it prints comes by way of the engine, a moment late. So a runtime gets, with the first byte, a pipe to
  print to: all that a job has printed is there when the job ends. A program prints to the engine still: the
  end of its job waits a moment for its last lines (`agent.protocol_worker`), and no longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.agent.container_engine import ContainerEngine
from stoker.agent.container_errors import EngineError
from stoker.agent.container_images import Images, wanted_by
from stoker.agent.container_plan import SOCKET, Ended, Plan, ended_words
from stoker.agent.frame_socket import FrameSocket
from stoker.agent.log_pipe import LogPipe, log_pipe
from stoker.agent.log_tail import Heard, LogTail
from stoker.agent.seams import Listener, SpawnFailed, WorkerExit, WorkerWatcher
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)

PRINT_HERE = b"p"
"""What the pipe for a runtime's output comes with."""

NEVER_RAN = 125
"""The status that the docker command gives to what it could not start."""

LOST = 255
"""Its engine went, or forgot it, before it told of an end."""

KILL_AGAIN_S = 5.0
"""An engine that hangs, or is just being started, loses a signal."""

SIGNALS_S = 10.0
"""Podman never answers a kill whose container was removed meanwhile: what is on its way is waited for, but
not for ever."""


@dataclass(frozen=True, slots=True)
class Container:
    """What to run: `plan` makes it of the id of its image. `folder` is where its frames come in."""

    spec: WorkerSpec
    plan: Callable[[str], Plan]
    name: str
    folder: Path | None
    memory: int | None
    gpus: int = 0


class ContainerProcess:
    """`ended` is done after `on_exit` was called."""

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
        self._door: Door | None = None
        if container.folder is not None:
            self._door = Door(container.folder, self._loop, watcher.on_frame, self._broken)
        self._tail = tail
        self._id = ""
        self._over = False
        self._killed: str | None = None
        self._terminated = False
        self._stopped = self._loop.create_future()  # told to stop before it ran
        self._left = self._loop.create_future()  # nothing more is to be heard of it
        self._abandoned = self._loop.create_future()
        self._signals: set[asyncio.Task[None]] = set()
        self._pipe: LogPipe | None = None
        self.ended = self._loop.create_task(self._live(), name=f"container of {container.spec.worker}")

    @property
    def pid(self) -> int:
        """Of no process that the agent could reach by a signal."""
        return 0

    def send(self, frame: Frame) -> None:
        if self._door is not None and not self._over:
            self._door.send(frame)

    def listen(self) -> Listener:
        return Heard(self._tail, self._drain)

    def pause(self) -> None:
        if self._door is not None:
            self._door.pause()

    def resume(self) -> None:
        if self._door is not None:
            self._door.resume()

    def terminate(self) -> None:
        if not self._over:
            self._terminated = True
            self._signal("SIGTERM")

    def kill(self) -> None:
        self._kill("killed by the agent")

    def abandon(self) -> None:
        """A later agent removes its container: this one ends, and its engine does not answer."""
        if not self._abandoned.done():
            self._abandoned.set_result(None)

    def _broken(self, why: str) -> None:
        self._kill(f"broke the worker protocol ({why}) and was killed")

    def _kill(self, why: str) -> None:
        if not self._over and self._killed is None:
            self._killed = why
            self._signal("SIGKILL")

    def _signal(self, name: str) -> None:
        if not self._id:
            if not self._stopped.done():
                self._stopped.set_result(None)
            return
        if self._left.done():  # an engine need not answer for one that is being removed
            return
        sent = self._engine.signal(self._id, name) if name != "SIGKILL" else self._kill_until_it_ends()
        task = self._loop.create_task(sent)
        self._signals.add(task)
        task.add_done_callback(self._signals.discard)

    async def _kill_until_it_ends(self) -> None:
        while not self._left.done():
            await self._engine.signal(self._id, "SIGKILL")
            await asyncio.wait({self._left}, timeout=KILL_AGAIN_S)

    def _drain(self) -> None:
        if self._pipe is not None:
            self._pipe.drain()

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
        self._tail.close()
        if self._door is not None:
            self._door.finish()
        self._watcher.on_exit(WorkerExit(status, reason, self._tail.lines))

    async def _end(self) -> tuple[int, str]:
        container = f"the container of worker {self._container.spec.worker}"
        try:
            return await self._run()
        except (EngineError, OSError) as error:
            return NEVER_RAN, f"{container} cannot be run: {error}"
        except Exception as error:  # whatever it is, the watcher waits for an end
            log.exception("%s", container)
            return NEVER_RAN, f"{container} cannot be run: {error!r}"

    async def _run(self) -> tuple[int, str]:
        image = await self._unless_stopped(self._images.resolve(wanted_by(self._container.spec)))
        if image is None:
            return self._stopped_early()
        container = await self._engine.create(self._container.plan(image), self._container.name)
        try:
            return await self._created(container)
        finally:
            self._left.set_result(None)
            if self._signals:
                await asyncio.wait(self._signals, timeout=SIGNALS_S)
            with contextlib.suppress(EngineError):
                await self._engine.remove(container)

    async def _created(self, container: str) -> tuple[int, str]:
        if self._stopped.done():
            return self._stopped_early()
        log_end, log_start = log_pipe()
        self._pipe = LogPipe(log_end, self._loop, self._tail)
        if self._door is not None:
            self._door.print_to(os.dup(log_start))
        ended = await self._engine.start(container, log_start)
        self._id = container
        if self._stopped.done():  # while it was being started
            self._signal("SIGKILL" if self._killed else "SIGTERM")
        wanted = self._container.gpus
        if wanted and (why := await self._engine.missing_gpu(container, wanted)) is not None:
            self._kill(f"{why}, and was killed")
        try:
            return self._words(await ended)
        except EngineError as gone:
            return LOST, f"the container of worker {self._container.spec.worker} was lost: {gone}"

    async def _unless_stopped(self, work: Coroutine[Any, Any, str]) -> str | None:
        task = asyncio.ensure_future(work)
        await asyncio.wait({task, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task})
        return None

    def _stopped_early(self) -> tuple[int, str]:
        """As if the signal had reached a container that runs."""
        return self._words(Ended(128 + (signal.SIGKILL if self._killed else signal.SIGTERM)))

    def _words(self, ended: Ended) -> tuple[int, str]:
        memory = self._container.memory
        return ended_words(ended, self._killed, terminated=self._terminated, memory=memory)


class Door:
    """Where the runtime in the container connects, once; before that it keeps what is sent. `print_to` comes
    before the container starts."""

    def __init__(
        self,
        folder: Path,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[Frame], None],
        on_broken: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._hear = on_frame, on_broken
        self._frames: FrameSocket | None = None
        self._waiting: list[Frame] = []
        self._log_start: int | None = None
        self._paused = False
        self._listener: socket.socket | None = _listen(folder)
        loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if self._log_start is not None:
            with contextlib.suppress(OSError):  # it has ended
                socket.send_fds(sock, [PRINT_HERE], [self._log_start])
        self._shut()
        self._frames = FrameSocket(sock, self._loop, *self._hear)
        if self._paused:
            self._frames.pause()
        for frame in self._waiting:
            self._frames.send(frame)
        self._waiting.clear()

    def _shut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        if self._log_start is not None:
            os.close(self._log_start)
            self._log_start = None

    def print_to(self, log_start: int) -> None:
        """A pipe, which is its own from now on."""
        self._log_start = log_start

    def send(self, frame: Frame) -> None:
        if self._frames is not None:
            self._frames.send(frame)
        elif self._listener is not None:
            self._waiting.append(frame)

    def pause(self) -> None:
        self._paused = True
        if self._frames is not None:
            self._frames.pause()

    def resume(self) -> None:
        self._paused = False
        if self._frames is not None:
            self._frames.resume()

    def finish(self) -> None:
        """Its container has ended: hands on every frame that it had sent, then closes."""
        self._shut()
        if self._frames is not None:
            self._frames.finish()


def _listen(folder: Path) -> socket.socket:
    """By way of a descriptor: the path of a data folder may be longer than a socket's may be."""
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
