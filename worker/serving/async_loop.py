"""Serves an asynchronous handler: each attempt is a task, several at once where the endpoint says so.

    agent ──run──> task ──done | failed──>        cancel ──> task.cancel()
    agent ──stop──> no more runs; returns when the last task has ended

The loop reads the socket. Sends stay blocking, because `job.progress` and `job.emit` are plain calls: all
attempts of a worker share one socket, so while the agent does not read, none of them could send anyway.
A generator gives the loop a turn after each yield, or a cancel could never reach one that awaits nothing.

Each task has a copy of the context that setup left behind. What is raised in a task that the handler itself
has started is for whoever awaits it, SystemExit too: `run_to_end` keeps the loop and the other jobs alive.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import copy_context
from types import AsyncGeneratorType
from typing import Any, TypeVar

from stoker.worker.attempt import Attempt, answer
from stoker.worker.channel import AgentGone, Channel, leave
from stoker.worker.errors import Cancelled, describe
from stoker.worker.frames import Frame, is_large_piece
from stoker.worker.output import decode_value
from stoker.worker.sdk import Job
from stoker.worker.slots import ASKED_AFTER, Slots

T = TypeVar("T")
Call = Callable[[Job], Any]


class AsyncLoop:
    """The link of its attempts to the agent (see `attempt.Link`)."""

    def __init__(self, channel: Channel, call: Call, slots: Slots, *, aggregate: bool) -> None:
        self._channel = channel
        self._call = call
        self._slots = slots
        self._context = copy_context()
        self._aggregate = aggregate
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop
        self._heard: deque[Frame] = deque()
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
            if frame.kind in ASKED_AFTER:
                self._slots.ask(self.send)
            if is_large_piece(frame):
                self._channel.send_piece(frame, self._hear)
            else:
                self._channel.send(frame)
        except AgentGone:
            leave()

    def _hear(self, frame: Frame) -> None:
        """Heard by a thread that waits for its large piece to be taken; it need not be the loop's."""
        self._heard.append(frame)
        self._loop.call_soon_threadsafe(self._take_heard)

    hears = True

    def wait(self, done: Callable[[], bool]) -> None:
        """Nothing: the loop reads."""

    def poll(self) -> None:
        """Nothing: the loop reads, and polling from another thread would race with it."""

    def _read(self) -> None:
        try:
            self._channel.poll(self._heard.append)
        except AgentGone:
            leave()
        self._take_heard()

    def _take_heard(self) -> None:
        """In the order in which they came, whoever heard them: a cancel follows its run."""
        while self._heard:
            self._take(self._heard.popleft())

    def _take(self, frame: Frame) -> None:
        if frame.kind == "run" and not self._stopped.is_set():
            fields = frame.fields
            attempt = Attempt(fields["job"], fields["attempt"], fields["scratch"], self)
            self._attempts[frame.job, frame.attempt] = attempt
            running = self._run(attempt, frame.body)
            self._group.create_task(running, name=f"job {frame.job}", context=self._context.copy())
            self._slots.ask(self.send)
        elif frame.kind == "cancel":
            self._cancel((frame.job, frame.attempt), str(frame.fields.get("reason", "")))
        elif frame.kind in ("fetched", "fetch_failed"):
            answer(self._attempts.get((frame.job, frame.attempt)), frame)
        elif frame.kind == "stop":
            self._stopped.set()

    def _cancel(self, key: tuple[str, int], reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or attempt.cancel_reason is not None:
            return
        attempt.cancel(reason)
        if key in self._tasks:  # a task that has not begun must not be cancelled: it would say nothing
            self._tasks[key].cancel()

    async def _run(self, attempt: Attempt, body: bytes) -> None:
        key = (attempt.job, attempt.number)
        task = asyncio.current_task()
        assert task is not None  # this is one
        self._tasks[key] = task
        try:
            await run_attempt(self._call, attempt, body, aggregate=self._aggregate)
        finally:
            del self._tasks[key], self._attempts[key]


def run_to_end(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, but for what passes through a loop: the SystemExit or KeyboardInterrupt of a task that is
    not `main` stops the loop, and here it goes on."""
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


async def run_attempt(call: Call, attempt: Attempt, body: bytes, *, aggregate: bool) -> None:
    """Run an asynchronous handler, of either kind, to its `done` or `failed`."""
    try:
        attempt.raise_if_cancelled()
        result = call(Job(attempt, decode_value(body)))
        if isinstance(result, AsyncGeneratorType):
            attempt.done_encoded(await _drain(result, attempt, aggregate=aggregate))
        else:
            attempt.done(await result)
    except asyncio.CancelledError as error:
        asked = attempt.cancel_reason
        attempt.failed(error if asked is None else Cancelled(asked))
    except BaseException as error:  # whatever a handler raises, SystemExit too, ends its job and no more
        attempt.failed(error)


async def _drain(results: AsyncGenerator[Any, Any], attempt: Attempt, *, aggregate: bool) -> bytes:
    bodies: list[bytes] = []
    try:
        async for value in results:
            body = attempt.emit(value)
            if aggregate:
                bodies.append(body)
            await asyncio.sleep(0)
    finally:
        await results.aclose()
    return b"[" + b",".join(bodies) + b"]"
