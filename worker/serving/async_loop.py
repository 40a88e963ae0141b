"""The loop of an asynchronous handler: each attempt is a task, several at once where the endpoint allows it.

    agent ──run──> task ──done | failed──>        cancel ──> task.cancel()
    agent ──stop──> no more runs; returns when the last task has ended

The loop reads the socket. Sends stay blocking, because `job.progress` and `job.emit` are plain calls: all
attempts of a worker share one socket, so while the agent does not read, none of them could send anyway.
A generator gives the loop a turn after each yield, or a cancel could never reach one that awaits nothing.

Each task has a copy of the context that setup left behind. An exception in a task that the handler itself has
started is for whoever awaits that task, SystemExit too: `run_to_end` keeps the loop and the other jobs alive.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import copy_context
from types import AsyncGeneratorType
from typing import Any, TypeVar

from stoker.worker.between_jobs.process_state import ProcessState
from stoker.worker.errors import Cancelled, clean, describe
from stoker.worker.frames import Frame
from stoker.worker.job.attempt import ANSWERS, Attempt, pass_answer
from stoker.worker.job.job import Job
from stoker.worker.payloads.output import decode
from stoker.worker.serving.channel import AgentGone, Channel, leave
from stoker.worker.serving.slots import ENDS, Slots
from stoker.worker.serving.sync_loop import tell

T = TypeVar("T")
Call = Callable[[Job], Any]


class AsyncLoop:
    """The `Link` of its attempts."""

    def __init__(self, channel: Channel, call: Call, slots: Slots, *, aggregate: bool) -> None:
        self._channel, self._call, self._slots = channel, call, slots
        self._context = copy_context()
        self._process = ProcessState()
        self._aggregate = aggregate
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop
        self._received: deque[Frame] = deque()
        self._stopped = asyncio.Event()
        self._group = asyncio.TaskGroup()

    async def serve(self) -> None:
        """Returns after a stop and the last attempt."""
        loop = self._loop = asyncio.get_running_loop()
        loop.add_reader(self._channel.fileno(), self._read)
        try:
            async with self._group:
                await self._stopped.wait()
        finally:
            loop.remove_reader(self._channel.fileno())

    def send(self, frame: Frame) -> None:
        try:
            if frame.kind in ENDS:
                self._slots.modify(self.send)
            if frame.kind in ("chunk", "save"):
                self._channel.send_chunk(frame, self._on_frame)
            else:
                self._channel.send(frame)
        except AgentGone:
            leave()

    def _on_frame(self, frame: Frame) -> None:
        """Receives a frame from a thread that waits for the `took` of its large chunk, which need not be the
        loop's.
        """
        self._received.append(frame)
        self._loop.call_soon_threadsafe(self._take_received)

    receives_in_background = True

    def wait(self, done: Callable[[], bool]) -> None:
        """Does nothing: the loop reads."""

    def poll(self) -> None:
        """Does nothing: the loop reads, and polling from another thread would race with it."""

    def _read(self) -> None:
        try:
            self._channel.poll(self._received.append)
        except AgentGone:
            leave()
        self._take_received()

    def _take_received(self) -> None:
        """Takes frames in the order in which they arrived, whichever thread received them: a cancel follows
        its run.
        """
        while self._received:
            self._take(self._received.popleft())

    def _take(self, frame: Frame) -> None:
        if frame.kind == "run" and not self._stopped.is_set():
            attempt = Attempt(frame, self)
            self._attempts[frame.job, frame.attempt] = attempt
            running = self._run(attempt)
            self._group.create_task(running, name=f"job {frame.job}", context=self._context.copy())
            self._slots.modify(self.send)
        elif frame.kind == "cancel":
            self._cancel((frame.job, frame.attempt), str(frame.fields.get("reason", "")))
        elif frame.kind == "yield":
            tell(self._attempts.get((frame.job, frame.attempt)), frame)
        elif frame.kind in ANSWERS:
            pass_answer(self._attempts.get((frame.job, frame.attempt)), frame)
        elif frame.kind == "stop":
            self._stopped.set()

    def _cancel(self, key: tuple[str, int], reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or attempt.cancel_reason is not None:
            return
        attempt.cancel(reason)
        if key in self._tasks:  # a task that is cancelled before it begins would send no end
            self._tasks[key].cancel()

    async def _run(self, attempt: Attempt) -> None:
        key = (attempt.job, attempt.number)
        task = asyncio.current_task()
        assert task is not None  # this is one
        self._tasks[key] = task
        try:
            await run_attempt(self._call, attempt, aggregate=self._aggregate)
        finally:
            del self._tasks[key], self._attempts[key]
            self._put_back()

    def _put_back(self) -> None:
        """Puts back only while no job runs: what one job changed, another may be using."""
        if why := self._process.open_files.excess() if self._attempts else self._process.put_back():
            self.send(Frame("retire", {"reason": clean(why)}))


def run_to_end(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine like `asyncio.run`, but goes on when a task that is not `main` stops the loop with
    SystemExit or KeyboardInterrupt.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as error:
                if task.done():
                    raise
                print(f"a task of the handler's ended: {describe(error)}", file=sys.stderr)


async def run_attempt(call: Call, attempt: Attempt, *, aggregate: bool) -> None:
    """Runs an asynchronous handler, plain or a generator, to its `done` or `failed`."""
    try:
        attempt.raise_if_cancelled()
        attempt.note_case()
        result = call(Job(attempt, decode(attempt.input.decode())))
        if isinstance(result, AsyncGeneratorType):
            attempt.done_encoded(await _drain(result, attempt, aggregate=aggregate))
        else:
            attempt.done(await result)
    except asyncio.CancelledError as error:
        reason = attempt.cancel_reason
        attempt.failed(error if reason is None else Cancelled(reason))
    except BaseException as error:  # whatever a handler raises, SystemExit too, ends its job and no more
        attempt.failed(error)


async def _drain(results: AsyncGenerator[Any, Any], attempt: Attempt, *, aggregate: bool) -> bytes:
    bodies: list[bytes] = []
    attempt.aggregates = aggregate
    try:
        async for value in results:
            body = attempt.emit(value)
            if aggregate:
                bodies.append(body)
            await asyncio.sleep(0)
    finally:
        await results.aclose()
    return b"[" + b",".join(bodies) + b"]"
