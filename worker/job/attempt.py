"""What one attempt has said so far, and how it says the rest.

    open ──progress, chunk, file──> open ──done | failed──> over

Numbers chunks and files, adds up metrics, and sends frames through a `Link`: the worker's socket, or what
`testing.LocalJob` collects. Exactly one `done` or `failed` is sent. After that, a thread that the handler
left behind can send no more for this job. The methods may be called from any thread. What was printed is
flushed before the end is sent: an attempt's log is what can be read when its end arrives.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from stoker.worker import device_cache, printed, recycling
from stoker.worker.errors import Cancelled, HandlerError, JobOver, OutputError, clean
from stoker.worker.files import OpenFile, written
from stoker.worker.frames import BODY_MAX, Frame, FrameError
from stoker.worker.output import encode_value

if TYPE_CHECKING:
    from concurrent.futures import Future

_METRICS_MAX = 100


class Link(Protocol):
    """The way to the agent."""

    def send(self, frame: Frame) -> None:
        """Blocks while the agent does not read. Raises FrameError for a frame that is too large."""

    def poll(self) -> None:
        """Take in, without waiting, what has arrived; a cancel among it reaches its attempt."""

    @property
    def hears(self) -> bool:
        """Whether what arrives is taken in while a handler waits. Where it is not, `wait` does so."""

    def wait(self, done: Callable[[], bool]) -> None:
        """Take in what arrives until `done`, as each frame may have made it."""


def answer(attempt: Attempt | None, frame: Frame) -> None:
    """Passes a `fetched` or `fetch_failed` on to the attempt that asked; drops it where that is over."""
    if attempt is not None and (attempt.job, attempt.number) == (frame.job, frame.attempt):
        attempt.answered(frame)
    else:
        frame.close()


class Attempt:
    """One attempt at one job. `cancel_reason` is None until it is cancelled."""

    __slots__ = (
        "_chunks",
        "_fields",
        "_files",
        "_fresh",
        "_inputs",
        "_link",
        "_lock",
        "_metrics",
        "_over",
        "_waiting",
        "cancel_reason",
        "job",
        "number",
        "scratch",
    )

    def __init__(self, job: str, number: int, scratch: str, link: Link) -> None:
        self.job = job
        self.number = number
        self.scratch = scratch
        self.cancel_reason: str | None = None
        self._fields: dict[str, Any] = {"job": job, "attempt": number}
        self._link = link
        self._lock = threading.RLock()
        self._chunks = 0
        self._files = 0
        self._metrics: dict[str, int] = {}
        self._over = False
        self._fresh = False
        self._inputs = 0
        self._waiting: dict[int, Future[Frame]] = {}

    def cancel(self, reason: str) -> None:
        """The first reason stands."""
        if self.cancel_reason is None:
            self.cancel_reason = reason
            self._give_up(Cancelled(reason))

    def is_cancelled(self) -> bool:
        """Looks at the socket too, so that a handler that computes without a break hears of it."""
        if self.cancel_reason is None and not self._over:
            self._link.poll()
        return self.cancel_reason is not None

    def raise_if_cancelled(self) -> None:
        if self.is_cancelled():
            raise Cancelled(self.cancel_reason or "")

    def measure(self, metric: str, quantity: int) -> None:
        if not isinstance(metric, str) or not 0 < len(metric) <= 100:
            raise HandlerError(f"a metric's name must be text of 1 to 100 letters, not {metric!r}")
        if isinstance(quantity, bool) or not isinstance(quantity, int) or not 0 <= quantity < 2**53:
            raise HandlerError(f"the quantity of {metric} must be a whole number from 0, not {quantity!r}")
        with self._lock:
            self._metrics[metric] = self._metrics.get(metric, 0) + quantity
            if len(self._metrics) > _METRICS_MAX:
                raise HandlerError(f"a job may measure at most {_METRICS_MAX} metrics")

    def refresh_worker(self) -> None:
        """Said when the attempt ends."""
        self._fresh = True

    @property
    def hears(self) -> bool:
        return self._link.hears

    def wait(self, done: Callable[[], bool]) -> None:
        if not self._link.hears:
            self._link.wait(done)

    def new_input(self) -> int:
        """Numbers what is fetched."""
        with self._lock:
            self._inputs += 1
            return self._inputs - 1

    def ask(self, answer: Future[Frame], **fields: Any) -> None:
        """Have a URL fetched. The cancel and the end of the attempt are answers too: exceptions."""
        self.raise_if_cancelled()
        n = self.new_input()
        self._waiting[n] = answer
        self._send("fetch", n=n, **fields)
        if self.cancel_reason is not None:
            self._give_up(Cancelled(self.cancel_reason))

    def answered(self, frame: Frame) -> None:
        """A `fetched` or `fetch_failed` has come; it is dropped where nobody waits for it."""
        answer = self._waiting.pop(int(frame.fields["n"]), None)
        if answer is None or not answer.set_running_or_notify_cancel():
            frame.close()
        else:
            answer.set_result(frame)

    def _give_up(self, error: BaseException) -> None:
        with suppress(KeyError):  # none is left; other threads take some, too
            while True:
                _, answer = self._waiting.popitem()
                if answer.set_running_or_notify_cancel():
                    answer.set_exception(error)

    def progress(self, value: object) -> None:
        body, _ = encode_value(value, name="progress", first_file=None)
        self._send("progress", body=body)

    def emit(self, value: object) -> bytes:
        """Send a chunk, and before it its files. Returns the chunk's JSON text."""
        with self._lock:
            body = self._with_files(value, "chunk")
            if len(body) > BODY_MAX:
                with self._written(body, f".chunk-{self._chunks}.json") as file:
                    self._send("chunk", fd=file.fd, n=self._chunks)
            else:
                self._send("chunk", body=body, n=self._chunks)
            self._chunks += 1
        return body

    def done(self, output: object) -> None:
        """The end, with what the handler returned; None is no output. Raises as `encode_value` does, and
        OutputError for an output that is too large: then the attempt is still open."""
        output, fresh = recycling.without_mark(output)
        self._fresh = self._fresh or fresh
        if output is None:
            self._finish(b"", has_output=False)
        else:
            with self._lock:
                self._finish(self._with_files(output, "output"), has_output=True)

    def done_encoded(self, body: bytes) -> None:
        """The end, with an output that is JSON text already and whose files have been sent."""
        self._finish(body, has_output=True)

    def failed(self, error: BaseException) -> None:
        """The end, with an error. Nothing happens if the attempt is over."""
        with self._lock:
            if not self._over:
                printed.flush()
                trouble = recycling.judge(error)
                told = recycling.in_words(error, trouble)
                again = recycling.may_be_tried_again(error, trouble)
                if self.cancel_reason is not None:
                    device_cache.give_back(error)
                self._retire(trouble)
                self._send("failed", error=clean(told), retryable=again)
                self._end()

    def _finish(self, body: bytes, *, has_output: bool) -> None:
        with self._lock:
            printed.flush()
            fields: dict[str, Any] = {"metrics": self._metrics, "has_output": has_output}
            if len(body) > BODY_MAX and not self._files:
                with self._written(body, ".output.json") as file:
                    self._send_file(file)
                body, fields["in_file"] = b"", True
            self._retire(None)
            if self.cancel_reason is not None:
                device_cache.give_back()
            self._send("done", body=body, files=self._files, **fields)
            self._end()

    def _end(self) -> None:
        self._over = True
        self._give_up(JobOver(f"the job {self.job} is over; nothing is fetched for it any more"))

    def _retire(self, trouble: recycling.Trouble | None) -> None:
        """Before the end: the platform gives a slot away as soon as it is free."""
        if trouble is not None and trouble.lost:
            self._send("retire", reason=clean(trouble.reason), lost=True)
        elif trouble is not None:
            self._send("retire", reason=trouble.reason)
        elif self._fresh:
            self._send("retire", reason=recycling.REFRESH)

    @contextmanager
    def _written(self, body: bytes, name: str) -> Iterator[OpenFile]:
        """What no frame can hold goes as a file."""
        try:
            file = written(body, self.scratch, name)
        except OSError as error:
            told = f"a value of {len(body)} bytes cannot be written to scratch: {error.strerror}"
            raise OutputError(told) from None
        try:
            yield file
        finally:
            os.close(file.fd)

    def _with_files(self, value: object, name: str) -> bytes:
        body, files = encode_value(value, name=name, scratch=self.scratch, first_file=self._files)
        try:
            for file in files:
                self._send_file(file)
        finally:
            for file in files:
                os.close(file.fd)
        return body

    def _send_file(self, file: OpenFile) -> None:
        self._send("file", fd=file.fd, n=self._files, name=file.name, media_type=file.media_type)
        self._files += 1

    def _send(self, kind: str, *, body: bytes = b"", fd: int | None = None, **fields: object) -> None:
        with self._lock:
            if self._over:
                raise JobOver(f"the job {self.job} is over; no {kind} can be sent for it any more")
            try:
                self._link.send(Frame(kind, {**self._fields, **fields}, body, fd))
            except FrameError as error:
                raise OutputError(str(error)) from None
