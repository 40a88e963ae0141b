"""Protocol workers as processes: the shell of `agent.protocol_machine`, and the Spawner of that kind.

    agent --send(frame)--> machine <--calls-- agent.protocol_server <--HTTP-- the program
      ^                      |
      '---- frames, in order, never from within a call of the agent's --- held while it is paused

- The process itself (session, environment, log, kill of everything it started) is `agent.local_process`'s.
- A post is answered when its frames have been heard, and a large piece when it was taken: so a program waits
  as a python worker does.
- Where what a program prints comes later than what it posts (from a container, by way of its engine), the end
  of its job waits a moment for it. What else it says does not, unless it says it after that.
- One key for each process. What a former process of the same worker still sends is nobody's.
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

from stoker.agent import protocol_events as ev
from stoker.agent import protocol_machine as machine
from stoker.agent.alarm import Alarm
from stoker.agent.birth import Program
from stoker.agent.protocol_bodies import Post, job_text
from stoker.agent.protocol_environment import protocol_environment
from stoker.agent.seams import Listener, Spawner, SpawnFailed, WorkerExit, WorkerProcess, WorkerWatcher
from stoker.wire.messages import AttemptKey, Device, WorkerSpec
from stoker.worker.frames import Frame, is_large_piece

log = logging.getLogger(__name__)

LAST_WORDS_S = 1.0
"""How long a dead program's posts that are half read are waited for."""

LOOK_AGAIN_S = 0.005

ENDS = frozenset({"done", "failed"})


class Desk(Protocol):
    """Where programs come to: the HTTP server, as far as this module needs it."""

    def open(self) -> str:
        """Starts to listen, once; the URL. Raises OSError."""

    def seat(self, key: str, process: ProtocolProcess) -> None: ...

    def leave(self, key: str) -> None: ...

    async def close(self) -> None: ...


class Starter(Protocol):
    """What makes a program's process: of plain ones `agent.local_process`, of those with an image
    `agent.container_spawner`."""

    def start(
        self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher, program: Program
    ) -> WorkerProcess: ...


class ProtocolSpawner:
    """Starts programs by the machinery of `starter`, whose owner closes it; this one closes its desk.
    `late_s` is how late what they print may come."""

    def __init__(self, starter: Starter, desk: Desk, late_s: float = 0.0) -> None:
        self._starter = starter
        self._desk = desk
        self._late_s = late_s

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> ProtocolProcess:
        if not spec.command and not spec.image:
            raise SpawnFailed(f"endpoint {spec.endpoint} names no command for its protocol worker")
        try:
            url = self._desk.open()
        except OSError as error:
            raise SpawnFailed(f"the worker protocol cannot be served: {error.strerror or error}") from None
        key = secrets.token_urlsafe(32)
        process = ProtocolProcess(spec, watcher, lambda: self._desk.leave(key), self._late_s)
        environment = protocol_environment(spec, device, url, key)
        program = Program(spec.command, Path(spec.handler), environment)
        process.child = self._starter.start(spec, device, process, program)
        self._desk.seat(key, process)
        return process

    async def close(self) -> None:
        await self._desk.close()


class ByKind:
    """The Spawner that the agent has: picks by the kind of the worker. `protocol` makes the other one, at the
    first worker that needs it: an HTTP server costs an agent 5 MB."""

    def __init__(self, python: Spawner, protocol: Callable[[], Spawner]) -> None:
        self._python, self._make = python, protocol
        self._protocol: Spawner | None = None

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> WorkerProcess:
        if spec.kind != "protocol":
            return self._python.spawn(spec, device, watcher)
        if self._protocol is None:
            self._protocol = self._make()
        return self._protocol.spawn(spec, device, watcher)

    async def close(self) -> None:
        await self._python.close()
        if self._protocol is not None:
            await self._protocol.close()


class ProtocolProcess:
    """One program: a WorkerProcess for the agent, a watcher for its process, a seat at the desk."""

    def __init__(
        self, spec: WorkerSpec, watcher: WorkerWatcher, on_gone: Callable[[], None], late_s: float = 0.0
    ) -> None:
        self.worker = spec.worker
        self.child: WorkerProcess
        self.last_ping: float | None = None
        self._loop = asyncio.get_running_loop()
        self._watcher = watcher
        self._on_gone = on_gone
        self._late_s = late_s
        self._state = machine.State(slots=spec.concurrency)
        self._alarm = Alarm(self._rings)
        self._requests = count(1)
        self._polls: dict[int, asyncio.Future[ev.GiveJobs | ev.GiveStops]] = {}
        self._outbox: deque[tuple[Frame, asyncio.Future[None], float]] = deque()  # and from when it is heard
        self._untaken: dict[tuple[AttemptKey, int], asyncio.Future[None]] = {}
        self._paused = False
        self._reading = 0
        self._over = False

    # -- what the agent does to it

    @property
    def pid(self) -> int:
        return self.child.pid

    def send(self, frame: Frame) -> None:
        now = self._loop.time()
        match frame.kind:
            case "run":
                text = job_text(frame.job, frame.body, frame.fields.get("more", {}))
                self._tell(ev.RunAsked(now, _key(frame), text))
            case "cancel":
                self._tell(ev.CancelAsked(now, _key(frame)))
            case "stop":
                self._tell(ev.DrainAsked(now))
            case "took":
                self._took(_key(frame), int(frame.fields["n"]))

    def listen(self) -> Listener:
        return self.child.listen()

    def terminate(self) -> None:
        """The signal first: a poll that returned before it would ask again."""
        self.child.terminate()
        self._tell(ev.Terminated(self._loop.time()))

    def kill(self) -> None:
        self.child.kill()

    def pause(self) -> None:
        """Nothing once it is over: its last words have no other time to be heard."""
        self._paused = not self._over

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._hand_on)

    # -- what its program asks

    async def take(
        self, room: int, many: bool, busy: bool | None, gone: asyncio.Future[None]
    ) -> Sequence[ev.Waiting]:
        """The jobs that it gets; none after a while."""
        request, answer = self._poll()
        self._tell(ev.TakeAsked(self._loop.time(), request, room, many, busy))
        await self._held(request, answer, gone)
        given = answer.result() if answer.done() and not answer.cancelled() else None
        if not isinstance(given, ev.GiveJobs) or not given.jobs:
            return ()
        arrived = not gone.done()
        keys = tuple(job.key for job in given.jobs)
        self._tell(ev.Handed(self._loop.time(), request, keys, arrived))
        return given.jobs if arrived else ()

    async def stops(self, gone: asyncio.Future[None]) -> Sequence[str]:
        """The jobs that it shall stop; none after a while."""
        request, answer = self._poll()
        self._tell(ev.StopAsked(self._loop.time(), request))
        await self._held(request, answer, gone)
        given = answer.result() if answer.done() and not answer.cancelled() else None
        return given.jobs if isinstance(given, ev.GiveStops) else ()

    async def posted(self, job: str, read: Callable[[], Awaitable[Post]]) -> None:
        """Returns when what it says has been heard."""
        self._reading += 1
        try:
            post = await read()
            heard = self._tell(ev.Posted(self._loop.time(), job, post))
        finally:
            self._reading -= 1
        if heard:
            await asyncio.wait(heard)

    def pinged(self, jobs: frozenset[str]) -> None:
        self.last_ping = self._loop.time()
        self._tell(ev.Pinged(self.last_ping, jobs))

    def unfit(self, why: str) -> None:
        self._tell(ev.Unfit(self._loop.time(), why))

    def _poll(self) -> tuple[int, asyncio.Future[ev.GiveJobs | ev.GiveStops]]:
        request = next(self._requests)
        answer: asyncio.Future[ev.GiveJobs | ev.GiveStops] = self._loop.create_future()
        if self._over:
            answer.cancel()
        self._polls[request] = answer
        return request, answer

    async def _held(
        self,
        request: int,
        answer: asyncio.Future[ev.GiveJobs | ev.GiveStops],
        gone: asyncio.Future[None],
    ) -> None:
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._polls.pop(request, None)
        if not answer.done():
            self._tell(ev.Left(self._loop.time(), request))

    # -- the machine

    def _tell(self, event: ev.Event) -> list[asyncio.Future[None]]:
        """What the event makes it say, each done when it was heard."""
        if self._over:
            return []
        self._state, commands = machine.step(self._state, event)
        self._alarm.set(machine.wake_at(self._state))
        heard = []
        for command in commands:
            match command:
                case ev.Say(frame):
                    heard.append(self._say(frame))
                case ev.Terminate():
                    self.child.terminate()
                case ev.GiveJobs(request) | ev.GiveStops(request):
                    if (answer := self._polls.get(request)) is not None and not answer.done():
                        answer.set_result(command)
        return heard

    def _rings(self, at: float) -> None:
        self._tell(ev.Tick(at))

    def _say(self, frame: Frame) -> asyncio.Future[None]:
        heard: asyncio.Future[None] = self._loop.create_future()
        late_s = self._late_s if frame.kind in ENDS else 0.0
        self._outbox.append((frame, heard, self._loop.time() + late_s))
        self._loop.call_soon(self._hand_on)
        return heard

    def _hand_on(self) -> None:
        while self._outbox and not self._paused:
            frame, heard, at = self._outbox[0]
            if not self._over and (wait_s := at - self._loop.time()) > 0:
                self._loop.call_later(wait_s, self._hand_on)
                return
            self._outbox.popleft()
            if is_large_piece(frame):
                self._untaken[_key(frame), int(frame.fields["n"])] = heard
            else:
                heard.set_result(None)
            self._watcher.on_frame(frame)

    def _took(self, key: AttemptKey, n: int) -> None:
        if (heard := self._untaken.pop((key, n), None)) is not None:
            heard.set_result(None)

    # -- its process

    def on_frame(self, frame: Frame) -> None:
        raise AssertionError(f"a program without frames sent {frame.kind}")

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002  # the word of the domain
        self._after_last_words(exit, self._loop.time() + LAST_WORDS_S)

    def _after_last_words(self, exit: WorkerExit, until: float) -> None:  # noqa: A002
        if self._reading and self._loop.time() < until:
            self._loop.call_later(LOOK_AGAIN_S, self._after_last_words, exit, until)
            return
        self._over = True
        self._on_gone()
        self._alarm.set(None)
        self._paused = False
        try:
            self._hand_on()
        finally:
            self._release()
            self._watcher.on_exit(exit)

    def _release(self) -> None:
        """Lets go of whoever still waits for an answer."""
        for answer in self._polls.values():
            answer.cancel()
        for heard in self._untaken.values():
            heard.set_result(None)
        self._untaken.clear()


def _key(frame: Frame) -> AttemptKey:
    return AttemptKey(frame.job, frame.attempt)
