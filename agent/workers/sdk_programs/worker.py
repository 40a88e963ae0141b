"""Runs protocol workers: drives `agent.workers.sdk_programs.protocol_machine`, and implements WorkerProcess
and Spawner with it.

    agent --send(frame)--> machine <--calls-- agent.workers.sdk_programs.server <--HTTP-- the program
      ^                      |
      '---- frames, in order, never from within a call of the agent; held back while it is paused

- The process itself (session, environment, log, kill of everything that it started) is started by
  `agent.workers.processes.local_spawner` or `agent.workers.containers.spawner`.
- A post is answered when the agent has received its frames, and a large chunk when the agent has taken it: a
  program therefore waits as a python worker does.
- In a container, a program's output arrives later than its posts, by way of the engine. There the frame that
  ends a job, and all frames after it, are delayed a moment.
- Each process has a key of its own. Calls of a former process of the same worker are refused.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol

from stoker.agent.alarm import Alarm
from stoker.agent.errors import SpawnFailed
from stoker.agent.host.own_network import OwnNetwork
from stoker.agent.interfaces import WorkerExit, WorkerWatcher
from stoker.agent.workers.processes.by_kind import ProgramSpawner
from stoker.agent.workers.processes.program_process import ProgramProcess
from stoker.agent.workers.processes.spawn_request import Program
from stoker.agent.workers.sdk_programs import events as ev
from stoker.agent.workers.sdk_programs import protocol_machine
from stoker.agent.workers.sdk_programs.bodies import Post, job_text
from stoker.agent.workers.sdk_programs.environment import protocol_environment
from stoker.agent.workers.sdk_programs.state import ProtocolState
from stoker.wire.messages import AttemptKey, Device, WorkerSpec
from stoker.worker.frames import Frame, waits_for_took

log = logging.getLogger(__name__)

LATE_POSTS_S = 1.0
"""How long a post of a program that has ended may take to be read."""

LOOK_AGAIN_S = 0.005

ENDS = frozenset({"done", "failed"})


class JobServer(Protocol):
    """The HTTP server that the programs call."""

    def open(self) -> str:
        """Starts the server, unless it runs, and returns its URL. Raises OSError."""

    def register(self, key: str, process: ProtocolProcess) -> None: ...

    def unregister(self, key: str) -> None: ...

    def listen_in(self, network: OwnNetwork, key: str) -> None:
        """Serves the process of this key in its own network, at the same URL, until it is unregistered.
        Raises NoEntry."""

    async def close(self) -> None: ...


class ProtocolSpawner:
    """Starts programs with `programs`, which it does not close. `late_s` is how late their output may
    arrive."""

    def __init__(self, programs: ProgramSpawner, server: JobServer, late_s: float = 0.0) -> None:
        self._programs, self._server, self._late_s = programs, server, late_s

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> ProtocolProcess:
        if not spec.command and not spec.image:
            raise SpawnFailed(f"endpoint {spec.endpoint} names no command for its protocol worker")
        try:
            url = self._server.open()
        except OSError as error:
            raise SpawnFailed(f"the worker protocol cannot be served: {error.strerror or error}") from None
        key = secrets.token_urlsafe(32)
        process = ProtocolProcess(spec, watcher, lambda: self._server.unregister(key), self._late_s)
        environment = protocol_environment(spec, device, url, key)
        program = Program(
            spec.command,
            Path(spec.handler),
            environment,
            lambda network: self._server.listen_in(network, key),
        )
        process.child = self._programs.spawn(spec, device, process, program)
        self._server.register(key, process)
        return process

    async def close(self) -> None:
        await self._server.close()


class ProtocolProcess(ProgramProcess):
    """A program: a WorkerProcess for the agent, and the watcher of the program's process."""

    def __init__(
        self, spec: WorkerSpec, watcher: WorkerWatcher, on_gone: Callable[[], None], late_s: float = 0.0
    ) -> None:
        self.worker = spec.worker
        self.last_ping: float | None = None
        self._loop = asyncio.get_running_loop()
        self._watcher, self._on_gone, self._late_s = watcher, on_gone, late_s
        self._state = ProtocolState(slots=spec.concurrency)
        self._alarm = Alarm(self._on_alarm)
        self._requests = count(1)
        self._polls: dict[int, asyncio.Future[ev.AnswerTake | ev.AnswerStops]] = {}
        self._frames: deque[tuple[Frame, asyncio.Future[None], float]] = deque()  # and when to deliver each
        self._untaken: dict[tuple[AttemptKey, int], asyncio.Future[None]] = {}
        self._paused = False
        self._reading = 0
        self._over = False

    # -- for the agent

    def send(self, frame: Frame) -> None:
        now = self._loop.time()
        match frame.kind:
            case "run":
                text = job_text(frame.job, frame.body, frame.fields.get("more", {}))
                self._step(ev.RunRequested(now, _key(frame), text))
            case "cancel":
                self._step(ev.CancelRequested(now, _key(frame)))
            case "stop":
                self._step(ev.DrainRequested(now))
            case "took":
                if (received := self._untaken.pop((_key(frame), int(frame.fields["n"])), None)) is not None:
                    received.set_result(None)

    def terminate(self) -> None:
        """Sends the signal before the polls are answered: a program whose poll returned earlier would poll
        again."""
        self.child.terminate()
        self._step(ev.Terminated(self._loop.time()))

    def pause(self) -> None:
        """Holds frames back. Does nothing once the process has ended, so that the last frames are
        delivered."""
        self._paused = not self._over

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._deliver)

    # -- calls of the program

    async def take(
        self, room: int, many: bool, busy: bool | None, gone: asyncio.Future[None]
    ) -> Sequence[ev.PendingJob]:
        """Waits for jobs and returns them; returns none after a while. `gone` is done if the caller hangs
        up."""
        request, future = self._poll()
        self._step(ev.TakeRequested(self._loop.time(), request, room, many, busy))
        answer = await self._answer(request, future, gone)
        if not isinstance(answer, ev.AnswerTake) or not answer.jobs:
            return ()
        arrived = not gone.done()
        keys = tuple(job.key for job in answer.jobs)
        self._step(ev.Handed(self._loop.time(), request, keys, arrived))
        return answer.jobs if arrived else ()

    async def stops(self, gone: asyncio.Future[None]) -> Sequence[str]:
        """Waits for jobs that are to stop and returns them; returns none after a while."""
        request, future = self._poll()
        self._step(ev.StopsRequested(self._loop.time(), request))
        answer = await self._answer(request, future, gone)
        return answer.jobs if isinstance(answer, ev.AnswerStops) else ()

    async def posted(self, job: str, read: Callable[[], Awaitable[Post]]) -> None:
        """Returns when the agent has received the frames of the post."""
        self._reading += 1
        try:
            post = await read()
            received = self._step(ev.Posted(self._loop.time(), job, post))
        finally:
            self._reading -= 1
        if received:
            await asyncio.wait(received)

    def pinged(self, jobs: frozenset[str]) -> None:
        self.last_ping = self._loop.time()
        self._step(ev.Pinged(self.last_ping, jobs))

    def unfit(self, why: str) -> None:
        self._step(ev.Unfit(self._loop.time(), why))

    def _poll(self) -> tuple[int, asyncio.Future[ev.AnswerTake | ev.AnswerStops]]:
        request = next(self._requests)
        answer: asyncio.Future[ev.AnswerTake | ev.AnswerStops] = self._loop.create_future()
        if self._over:
            answer.cancel()
        self._polls[request] = answer
        return request, answer

    async def _answer(
        self,
        request: int,
        answer: asyncio.Future[ev.AnswerTake | ev.AnswerStops],
        gone: asyncio.Future[None],
    ) -> ev.AnswerTake | ev.AnswerStops | None:
        """Returns None if the caller hangs up, or the process ends, before there is an answer."""
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._polls.pop(request, None)
        if not answer.done():
            self._step(ev.Left(self._loop.time(), request))
        return answer.result() if answer.done() and not answer.cancelled() else None

    # -- the machine

    def _step(self, event: ev.Event) -> list[asyncio.Future[None]]:
        """Returns a future for each frame that the event causes, which is done when the agent received it."""
        if self._over:
            return []
        self._state, commands = protocol_machine.step(self._state, event)
        self._alarm.set(protocol_machine.wake_at(self._state))
        received = []
        for command in commands:
            match command:
                case ev.SendFrame(frame):
                    received.append(self._queue(frame))
                case ev.Terminate():
                    self.child.terminate()
                case ev.AnswerTake(request) | ev.AnswerStops(request):
                    if (answer := self._polls.get(request)) is not None and not answer.done():
                        answer.set_result(command)
        return received

    def _on_alarm(self, at: float) -> None:
        self._step(ev.Tick(at))

    def _queue(self, frame: Frame) -> asyncio.Future[None]:
        received: asyncio.Future[None] = self._loop.create_future()
        late_s = self._late_s if frame.kind in ENDS else 0.0
        self._frames.append((frame, received, self._loop.time() + late_s))
        self._loop.call_soon(self._deliver)
        return received

    def _deliver(self) -> None:
        while self._frames and not self._paused:
            frame, received, at = self._frames[0]
            if not self._over and (wait_s := at - self._loop.time()) > 0:
                self._loop.call_later(wait_s, self._deliver)
                return
            self._frames.popleft()
            if waits_for_took(frame):
                self._untaken[_key(frame), int(frame.fields["n"])] = received
            else:
                received.set_result(None)
            self._watcher.on_frame(frame)

    # -- its process

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        self._after_late_posts(exit, self._loop.time() + LATE_POSTS_S)

    def _after_late_posts(self, exit: WorkerExit, until: float) -> None:  # noqa: A002
        if self._reading and self._loop.time() < until:
            self._loop.call_later(LOOK_AGAIN_S, self._after_late_posts, exit, until)
            return
        self._over = True
        self._on_gone()
        self._alarm.set(None)
        self._paused = False
        try:
            self._deliver()
        finally:
            for answer in self._polls.values():
                answer.cancel()
            for received in self._untaken.values():
                received.set_result(None)
            self._untaken.clear()
            self._watcher.on_exit(exit)


def _key(frame: Frame) -> AttemptKey:
    return AttemptKey(frame.job, frame.attempt)
