"""The loop of a synchronous handler: one attempt at a time, on the main thread. `threads_loop` runs several.

    waiting ──run──> running ──done | failed──> waiting ──stop──> returns

A run that is queued ahead, while another is under way, begins only with a permission from the pipe
`permissions`, which the agent may take back until then; without one it was withdrawn, and is dropped.

There is no second thread. While the handler runs, the socket is read when the handler reads `job.cancelled`,
and between the yields of a generator. Frames that arrive early (the next run, a stop) wait in the inbox. What
a job has changed of its process is put back before it ends (`process_state`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from types import GeneratorType
from typing import Any

from stoker.worker.between_jobs.process_state import ProcessState
from stoker.worker.frames import Frame
from stoker.worker.job.attempt import ANSWERS, Attempt, pass_answer
from stoker.worker.job.job import Job
from stoker.worker.payloads.output import decode
from stoker.worker.serving.channel import AgentGone, Channel, leave

Call = Callable[[Job], Any]

AHEAD_MOST = 8
"""Runs that it takes before their turn."""


class SyncLoop:
    """The `Link` of its attempts."""

    def __init__(
        self, channel: Channel, call: Call, *, aggregate: bool, permissions: int | None = None
    ) -> None:
        self._permissions = permissions
        self._retires = False
        self._channel, self._call, self._aggregate = channel, call, aggregate
        self._process = ProcessState()
        self._inbox: deque[Frame] = deque()
        self._current: Attempt | None = None

    def serve(self) -> None:
        """Returns after a stop. Raises AgentGone."""
        while True:
            self._channel.wait(self._inbox.__len__, self._inbox.append)
            frame = self._inbox.popleft()
            if frame.kind == "stop":
                return
            if frame.kind == "run" and ("ahead" not in frame.fields or self._may_begin()):
                attempt = Attempt(frame, self)
                self._current = attempt  # first: a thread that the handler left may receive a cancel now
                for early in tuple(self._inbox):  # its cancel may have come with it
                    if early.kind in TOLD:
                        tell(attempt, early)
                put_back = self._process.put_back
                run_attempt(self._call, attempt, aggregate=self._aggregate, put_back=put_back)
                self._current = None
            else:
                frame.close()  # a cancel that came late, or an answer to a job that has ended

    def _may_begin(self) -> bool:
        """Returns whether the worker may begin a run that was queued ahead; never once the worker has asked
        to be replaced.
        """
        if self._permissions is None or self._retires:
            return False
        try:
            return os.read(self._permissions, 1) != b""
        except BlockingIOError:
            return False

    def send(self, frame: Frame) -> None:
        self._retires = self._retires or frame.kind == "retire"
        try:
            if frame.kind in ("chunk", "save"):
                self._channel.send_chunk(frame, self._on_frame)
            else:
                self._channel.send(frame)
        except AgentGone:
            leave()

    def poll(self) -> None:
        try:
            self._channel.poll(self._on_frame)
        except AgentGone:
            leave()

    receives_in_background = False

    def wait(self, done: Callable[[], bool]) -> None:
        try:
            self._channel.wait(done, self._on_frame)
        except AgentGone:
            leave()

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind in ANSWERS:
            pass_answer(self._current, frame)
            return
        self._inbox.append(frame)
        if frame.kind in TOLD and self._current is not None:
            tell(self._current, frame)


def run_attempt(
    call: Call, attempt: Attempt, *, aggregate: bool, put_back: Callable[[], str] = lambda: ""
) -> None:
    """Runs a synchronous handler, plain or a generator, to its `done` or `failed`.

    `put_back` is called before either, so that an alarm that the job left cannot interrupt the sending of its
    end. It returns why the worker must be replaced, or an empty text.
    """
    try:
        if attempt.cancel_reason is not None:
            attempt.raise_if_cancelled()
        attempt.note_case()
        result = call(Job(attempt, decode(attempt.input.decode())))
        end: Callable[[], None] = partial(attempt.done, result)
        if isinstance(result, GeneratorType):
            end = _drained(result, attempt, aggregate=aggregate)
        if why := put_back():
            attempt.refresh_worker(why)
        end()
    except BaseException as error:  # whatever a handler raises, SystemExit too, ends its job and no more
        if why := put_back():
            attempt.refresh_worker(why)
        attempt.failed(error)


def _drained(results: Generator[Any, Any, Any], attempt: Attempt, *, aggregate: bool) -> Callable[[], None]:
    """Emits what the generator yields, and returns what ends the attempt: with the generator's return value
    where there is one, else with the list of all it yielded."""
    bodies: list[bytes] = []
    attempt.aggregates = aggregate
    try:
        while True:
            body = attempt.emit(next(results))
            if aggregate:
                bodies.append(body)
            attempt.raise_if_cancelled()
    except StopIteration as stop:
        returned = stop.value
    finally:
        results.close()
    if returned is not None:
        return partial(attempt.done, returned)
    return partial(attempt.done_encoded, b"[" + b",".join(bodies) + b"]")


TOLD = frozenset({"cancel", "yield"})
"""Frames that an attempt is told of while it runs."""


def tell(attempt: Attempt | None, frame: Frame) -> None:
    """Tells the attempt of a cancel, or a request to yield, that is about it."""
    if attempt is not None and (frame.job, frame.attempt) == (attempt.job, attempt.number):
        attempt.told(frame)
