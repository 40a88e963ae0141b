"""Serves a synchronous handler: one attempt at a time, on the main thread. `threads_loop` runs several.

    waiting ──run──> running ──done | failed──> waiting ──stop──> returns

There is no second thread: while the handler runs, the socket is read when it asks `job.cancelled`, and
between the yields of a generator. What arrives early (the next run, a stop) waits its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from types import GeneratorType
from typing import Any

from stoker.worker.attempt import Attempt, answer
from stoker.worker.channel import AgentGone, Channel, leave
from stoker.worker.frames import Frame, is_large_piece
from stoker.worker.output import decode_value
from stoker.worker.sdk import Job

Call = Callable[[Job], Any]


class SyncLoop:
    """The link of its attempts to the agent (see `attempt.Link`)."""

    def __init__(self, channel: Channel, call: Call, *, aggregate: bool) -> None:
        self._channel = channel
        self._call = call
        self._aggregate = aggregate
        self._inbox: deque[Frame] = deque()
        self._current: Attempt | None = None

    def serve(self) -> None:
        """Returns after a stop. Raises AgentGone."""
        while True:
            frame = self._next()
            if frame.kind == "run":
                self._run(frame)
            elif frame.kind == "stop":
                return

    def send(self, frame: Frame) -> None:
        try:
            if is_large_piece(frame):
                self._channel.send_piece(frame, self._hear)
            else:
                self._channel.send(frame)
        except AgentGone:
            leave()

    def poll(self) -> None:
        try:
            self._channel.poll(self._hear)
        except AgentGone:
            leave()

    hears = False

    def wait(self, done: Callable[[], bool]) -> None:
        try:
            self._channel.wait(done, self._hear)
        except AgentGone:
            leave()

    def _hear(self, frame: Frame) -> None:
        if frame.kind in ("fetched", "fetch_failed"):
            answer(self._current, frame)
            return
        self._inbox.append(frame)
        if frame.kind == "cancel" and self._current is not None:
            _cancel(self._current, frame)

    def _next(self) -> Frame:
        self._channel.wait(lambda: bool(self._inbox), self._hear)
        return self._inbox.popleft()

    def _run(self, frame: Frame) -> None:
        fields = frame.fields
        attempt = Attempt(fields["job"], fields["attempt"], fields["scratch"], self)
        self._current = attempt  # first: a thread of the handler's may hear a cancel now
        for waiting in tuple(self._inbox):  # its cancel may have come with it
            if waiting.kind == "cancel":
                _cancel(attempt, waiting)
        run_attempt(self._call, attempt, frame.body, aggregate=self._aggregate)
        self._current = None


def run_attempt(call: Call, attempt: Attempt, body: bytes, *, aggregate: bool) -> None:
    """Run a synchronous handler, of either kind, to its `done` or `failed`."""
    try:
        if attempt.cancel_reason is not None:
            attempt.raise_if_cancelled()
        result = call(Job(attempt, decode_value(body)))
        if isinstance(result, GeneratorType):
            _drain(result, attempt, aggregate=aggregate)
        else:
            attempt.done(result)
    except BaseException as error:  # whatever a handler raises, SystemExit too, ends its job and no more
        attempt.failed(error)


def _drain(results: Generator[Any, Any, Any], attempt: Attempt, *, aggregate: bool) -> None:
    """Emit what it yields. Its return value is the output, or else the list of all it yielded."""
    bodies: list[bytes] = []
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
        attempt.done(returned)
    else:
        attempt.done_encoded(b"[" + b",".join(bodies) + b"]")


def _cancel(attempt: Attempt, frame: Frame) -> None:
    if (frame.job, frame.attempt) == (attempt.job, attempt.number):
        attempt.cancel(str(frame.fields.get("reason", "")))
