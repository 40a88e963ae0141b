"""A single attempt at one job: numbers its chunks and files, adds up its metrics, and sends its frames.

    open ──progress, chunk, file, save, case──> open ──done | failed──> ended

Frames go through a `Link`: the worker's socket, or what `testing.LocalJob` collects. Exactly one `done` or
`failed` is sent; after that, a thread that the handler left behind can send no more for this job. The methods
may be called from any thread. What was printed is flushed before the end is sent: an attempt's log is what
can be read when its end arrives.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from stoker.worker.between_jobs import device_cache, device_errors, refresh_key
from stoker.worker.between_jobs.process_state import flush_output
from stoker.worker.errors import Cancelled, HandlerError, JobOver, OutputError, Yielded, clean, is_yield
from stoker.worker.frames import BODY_MAX, SAVE_MAX, Frame, FrameError
from stoker.worker.job import saves
from stoker.worker.payloads.files import OpenFile, written
from stoker.worker.payloads.output import encode_value

if TYPE_CHECKING:
    from concurrent.futures import Future

    from stoker.worker.job.case import CaseNotes

_METRICS_MAX = 100


class Link(Protocol):
    """The connection to the agent."""

    def send(self, frame: Frame) -> None:
        """Blocks while the agent does not read. Raises FrameError for a frame that is too large."""

    def poll(self) -> None:
        """Receives the frames that have arrived, without waiting; a cancel among them reaches its attempt."""

    @property
    def receives_in_background(self) -> bool:
        """Returns whether frames are received while a handler waits. Where they are not, `wait` receives
        them.
        """

    def wait(self, done: Callable[[], bool]) -> None:
        """Receives frames until `done` returns true; `done` is called after each frame."""


STOPPED = "the attempt was stopped after its last report that was asked for"
"""Part of the error of an attempt with `stop_after`."""

ANSWERS = ("fetched", "fetch_failed", "kept_page")
"""The kinds of frames that answer a request of an attempt."""


def pass_answer(attempt: Attempt | None, frame: Frame) -> None:
    """Passes one of ANSWERS to the attempt that it answers; drops it if that has ended."""
    if attempt is not None and (attempt.job, attempt.number) == (frame.job, frame.attempt):
        attempt.answered(frame)
    else:
        frame.close()


def _case_notes(scratch: str) -> CaseNotes:
    from stoker.worker.job.case import CaseNotes  # few workers need it

    return CaseNotes(scratch)


class Attempt:
    """The attempt that a `run` frame begins. `cancel_reason` is None until it is cancelled, `yield_reason`
    until it is asked to yield. `input` is JSON
    text; `saved` the state that an earlier attempt saved, None where there is none: chunks are counted on
    from there, and metrics added up. `kept`: how many chunks that save covers; `gives_kept`: the agent gives
    them back. `aggregates`: the output is the list of all chunks."""

    __slots__ = (
        "_case",
        "_chunks",
        "_ended",
        "_fields",
        "_files",
        "_inputs",
        "_link",
        "_lock",
        "_metrics",
        "_refresh_reason",
        "_saved_upto",
        "_saves",
        "_scratch",
        "_scratch_made",
        "_stop_in",
        "_too_large",
        "_waiting",
        "aggregates",
        "cancel_reason",
        "gives_kept",
        "input",
        "job",
        "kept",
        "number",
        "s3_config",
        "saved",
        "traceparent",
        "yield_reason",
    )

    def __init__(self, run: Frame, link: Link) -> None:
        fields = run.fields
        self.job: str = fields["job"]
        self.number: int = fields["attempt"]
        more = fields.get("more", {})
        self.s3_config: dict[str, str] | None = more.get("s3Config")
        self.traceparent: str | None = more.get("traceparent")
        self.cancel_reason: str | None = None
        self.yield_reason: str | None = None
        self._fields: dict[str, Any] = {"job": self.job, "attempt": self.number}
        self._link = link
        self._lock = threading.RLock()
        self._scratch: str = fields["scratch"]
        self._scratch_made = False
        self.input = run.body
        self.saved: bytes | None = None
        self.kept = 0
        self.gives_kept = False
        self.aggregates = False
        self._chunks = 0
        self._too_large: tuple[int, int] | None = None
        self._saves = 0
        self._saved_upto = 0
        self._files = 0
        self._metrics: dict[str, int] = {}
        if "saved" in more:
            self._go_on(more["saved"], run.body)
        self._case = _case_notes(self._scratch) if more.get("case") else None
        self._stop_in: int = more.get("stop_after", 0)
        self._ended = False
        self._refresh_reason = ""
        self._inputs = 0
        self._waiting: dict[int, Future[Frame]] = {}

    def _go_on(self, saved: dict[str, int], body: bytes) -> None:
        self.input = body[: saved["input"]]
        self.saved, self._metrics = saves.unpacked(body[saved["input"] :])
        self._chunks = self._saved_upto = self.kept = saved["upto"]
        self.gives_kept = "kept" in saved

    @property
    def scratch(self) -> str:
        """The path of its folder, which is made now unless it was before; not once the attempt has ended,
        when the agent removes it. Raises HandlerError where it cannot be made."""
        if not self._scratch_made:
            with self._lock:
                if not self._ended:
                    self._make_scratch()
        return self._scratch

    def _make_scratch(self) -> None:
        try:
            os.mkdir(self._scratch, 0o700)
        except FileExistsError:
            pass  # the agent made it, or a process that the handler forked
        except OSError as error:
            why = f"the job's scratch folder cannot be made: {error.strerror}"
            raise HandlerError(why, retryable=True) from None
        self._scratch_made = True

    def note_case(self, error: BaseException | None = None) -> None:
        """Sends the facts for the case of the job, should it fail, where the agent asked for them."""
        if self._case is not None:
            self._send("case", body=json.dumps(self._case.facts(error)).encode())

    def note_file(self, url: str, size: int, sha256: str) -> None:
        """Adds a file that was fetched to the facts for the job's case."""
        if self._case is not None:
            self._case.add_file(url, size, sha256)
            self.note_case()

    def cancel(self, reason: str) -> None:
        """Cancels the attempt. Only the first reason is kept."""
        if self.cancel_reason is None:
            self.cancel_reason = reason
            self._fail_fetches(Cancelled(reason))

    def is_cancelled(self) -> bool:
        """Polls the socket too, so that a handler that computes without a break learns of its cancel."""
        if self.cancel_reason is None and not self._ended:
            self._link.poll()
        return self.cancel_reason is not None

    def is_asked_to_yield(self) -> bool:
        if self.yield_reason is None and not self._ended:
            self._link.poll()
        return self.yield_reason is not None

    def told(self, frame: Frame) -> None:
        """Takes a `cancel` or a `yield`."""
        reason = str(frame.fields.get("reason", ""))
        if frame.kind == "cancel":
            self.cancel(reason)
        elif self.yield_reason is None:
            self.yield_reason = reason

    def raise_if_cancelled(self) -> None:
        if self.is_cancelled():
            raise Cancelled(self.cancel_reason or "")

    def measure(self, metric: str, quantity: int) -> None:
        if not isinstance(metric, str) or not 0 < len(metric) <= 100:
            raise HandlerError(f"a metric's name must be text of 1 to 100 characters, not {metric!r}")
        if isinstance(quantity, bool) or not isinstance(quantity, int) or not 0 <= quantity < 2**53:
            raise HandlerError(f"the quantity of {metric} must be a whole number from 0, not {quantity!r}")
        with self._lock:
            self._metrics[metric] = self._metrics.get(metric, 0) + quantity
            if len(self._metrics) > _METRICS_MAX:
                raise HandlerError(f"a job may measure at most {_METRICS_MAX} metrics")

    def refresh_worker(self, reason: str = refresh_key.REFRESH) -> None:
        """Asks for a fresh worker: `retire` is sent when the attempt ends."""
        self._refresh_reason = self._refresh_reason or reason

    @property
    def receives_in_background(self) -> bool:
        return self._link.receives_in_background

    def wait(self, done: Callable[[], bool]) -> None:
        if not self._link.receives_in_background:
            self._link.wait(done)

    def next_input_number(self) -> int:
        with self._lock:
            self._inputs += 1
            return self._inputs - 1

    def request(self, kind: str, answer: Future[Frame], **fields: Any) -> None:
        """Asks the agent with a frame of this kind. A cancel and the end of the attempt set an exception on
        `answer`."""
        self.raise_if_cancelled()
        n = self.next_input_number()
        self._waiting[n] = answer
        self._send(kind, n=n, **fields)
        if self.cancel_reason is not None:
            self._fail_fetches(Cancelled(self.cancel_reason))

    def answered(self, frame: Frame) -> None:
        """Takes an answer; drops it if nothing waits for it."""
        answer = self._waiting.pop(int(frame.fields["n"]), None)
        if answer is None or not answer.set_running_or_notify_cancel():
            frame.close()
        else:
            answer.set_result(frame)

    def _fail_fetches(self, error: BaseException) -> None:
        with suppress(KeyError):  # none is left; other threads take some, too
            while True:
                _, answer = self._waiting.popitem()
                if answer.set_running_or_notify_cancel():
                    answer.set_exception(error)

    def progress(self, value: object) -> None:
        self._send("progress", body=encode_value(value, name="progress"))
        if self._stop_in:
            self._stop_if_last()

    def emit(self, value: object) -> bytes:
        """Sends a chunk, which has no Files: only an output is uploaded with them. Returns the chunk's JSON
        text. Raises OutputError."""
        with self._lock:
            body = encode_value(value, name="chunk")
            if len(body) > BODY_MAX:
                self._too_large = self._too_large or (self._chunks, len(body))
                with self._written(body, f".chunk-{self._chunks}.json") as file:
                    self._send("chunk", fd=file.fd, n=self._chunks)
            else:
                self._send("chunk", body=body, n=self._chunks)
            self._chunks += 1
        if self._stop_in:
            self._stop_if_last()
        return body

    def _stop_if_last(self) -> None:
        """Cancels the attempt if this report was the last that was asked for. Raises Cancelled then."""
        with self._lock:
            self._stop_in -= 1
            if not self._stop_in:
                self.cancel(STOPPED)
        self.raise_if_cancelled()

    def save(self, state: object, upto: int | None) -> None:
        """Sends a save, which covers the chunks before `upto`. Raises HandlerError; Yielded, once the save is
        sent, if the attempt was asked to yield."""
        if self.aggregates:
            raise HandlerError("a handler with aggregate=True cannot save: its output is all of its chunks")
        found = saves.bytes_of(state, self._scratch)
        if len(found) > SAVE_MAX:
            raise HandlerError(f"a save of {len(found)} bytes is over the limit of {SAVE_MAX}")
        with self._lock:
            upto = saves.checked_upto(upto, self._saved_upto, self._chunks)
            saves.check_kept(upto, self._too_large)
            self._send("save", body=saves.packed(found, self._metrics), n=self._saves, upto=upto)
            self._saves, self._saved_upto = self._saves + 1, upto
        if self.is_asked_to_yield():
            raise Yielded(self.yield_reason or "")

    def done(self, output: object) -> None:
        """Ends the attempt with what the handler returned; None is no output.

        Raises as `encode_value` does, and OutputError for an output that is too large. The attempt is still
        open then.
        """
        if isinstance(output, dict) and refresh_key.REFRESH_KEY in output:
            output, refresh = refresh_key.without_refresh_key(output)
            if refresh:
                self.refresh_worker()
        with self._lock:
            body = b""
            if output is not None:
                body = encode_value(output, name="output", scratch=self._scratch, hand_over=self._send_file)
            self._end("done", body, has_output=output is not None, metrics=self._metrics, files=self._files)

    def done_encoded(self, body: bytes) -> None:
        """Ends the attempt with an output that is JSON text already, and has no Files."""
        with self._lock:
            self._end("done", body, has_output=True, metrics=self._metrics, files=self._files)

    def failed(self, error: BaseException) -> None:
        """Ends the attempt with an error. Does nothing if it has ended."""
        with self._lock:
            if not self._ended:
                if is_yield(error):
                    self._end("failed", error=clean(str(error)), retryable=True, yielded=True)
                    return
                fault = device_errors.fault_of(error)
                self.note_case(error)
                text = clean(device_errors.error_text(error, fault))
                retryable = device_errors.is_job_retryable(error, fault)
                self._end("failed", cause=error, fault=fault, error=text, retryable=retryable)

    def _end(
        self,
        kind: str,
        body: bytes = b"",
        *,
        cause: BaseException | None = None,
        fault: device_errors.WorkerFault | None = None,
        **fields: Any,
    ) -> None:
        """Sends the frame that ends the attempt. A `retire` frame goes before that: the platform reuses a
        slot as soon as the slot is free."""
        flush_output()
        if len(body) > BODY_MAX and not self._files:
            with self._written(body, ".output.json") as file:
                self._send_file(file)
            body, fields = b"", {**fields, "in_file": True, "files": self._files}
        if self.cancel_reason is not None:
            device_cache.empty_cache(cause)
        if fault is not None:
            lost: dict[str, Any] = {"lost": True} if fault.lost else {}
            self._send("retire", reason=clean(fault.reason), **lost)
        elif self._refresh_reason:
            self._send("retire", reason=clean(self._refresh_reason))
        self._send(kind, body=body, **fields)
        self._ended = True
        if self._waiting:
            self._fail_fetches(JobOver(f"the job {self.job} is over; nothing is fetched for it any more"))

    @contextmanager
    def _written(self, body: bytes, name: str) -> Iterator[OpenFile]:
        """Yields a file in `scratch` with a body that is too large for a frame, and closes the file
        afterwards.
        """
        try:
            file = written(body, self.scratch, name)
        except OSError as error:
            message = f"a value of {len(body)} bytes cannot be written to scratch: {error.strerror}"
            raise OutputError(message) from None
        try:
            yield file
        finally:
            os.close(file.fd)

    def _send_file(self, file: OpenFile) -> int:
        self._send("file", fd=file.fd, n=self._files, name=file.name, media_type=file.media_type)
        self._files += 1
        return self._files - 1

    def _send(self, kind: str, *, body: bytes = b"", fd: int | None = None, **fields: object) -> None:
        with self._lock:
            if self._ended:
                raise JobOver(f"the job {self.job} is over; no {kind} can be sent for it any more")
            try:
                self._link.send(Frame(kind, {**self._fields, **fields}, body, fd))
            except FrameError as error:
                raise OutputError(str(error)) from None
