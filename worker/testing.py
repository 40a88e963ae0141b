"""A run of a handler without the platform, through the same code that the worker process runs.

    local = LocalJob(handler, {"prompt": "a lighthouse"}).run()
    assert local.progress[-1] == {"step": 4, "of": 4}
    assert local.output["image"].read_bytes().startswith(b"\\x89PNG")

Where the handler raised, `output` raises the same, with the handler's own traceback; `error` is the text that
the platform would show.

All kinds of handlers work: functions, async functions, generators of either kind, and classes, whose `setup`
is called with `device` first: `Device("GPU-1", "gpu", "NVIDIA H200")`, or the CPU by default. To run
several jobs on one loaded model, pass the bound method of an instance that is set up already:
`LocalJob(model.run, …)`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stoker.worker.errors import HandlerError
from stoker.worker.frames import FILE_MARK, Frame, encode, kept_page
from stoker.worker.job.attempt import Attempt
from stoker.worker.job.saves import unpacked
from stoker.worker.sdk import Device
from stoker.worker.serving.sync_loop import run_attempt
from stoker.worker.setup.preparation import prepare
from stoker.worker.setup.registration import register

if TYPE_CHECKING:
    import asyncio

__all__ = ["LocalFile", "LocalJob", "LocalSave"]


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A File that the handler handed over; `output` has it in place of the File."""

    path: Path
    name: str
    media_type: str

    def read_bytes(self) -> bytes:
        return self.path.read_bytes()


@dataclass(frozen=True, slots=True)
class LocalSave:
    """A save of a job: `LocalJob(…, saved=local.saves[-1])` goes on from there, as a later attempt would.
    `upto`: how many chunks it covers; `kept`: their values, which that attempt finds at `job.kept`. With
    None in place of them (`dataclasses.replace(save, kept=None)`) it cannot have them."""

    body: bytes
    upto: int
    kept: tuple[Any, ...] | None = None

    @property
    def state(self) -> bytes:
        return unpacked(self.body)[0]


_PAGE = 2
"""Kept chunks that are given back at once: few, so that a short test reads several pages."""

_NO_KEPT: dict[str, Any] = {
    "reason": "not_here",
    "error": "this run has the job's save alone, and not the chunks that the save covers;"
    " a replay on a node (`stoker replay JOB --on NODE`) has them",
    "retryable": False,
}


class _Attempt(Attempt):
    """An attempt that keeps the exception of its handler."""

    raised: BaseException | None = None
    trace: TracebackType | None = None

    def failed(self, error: BaseException) -> None:
        self.raised, self.trace = error, error.__traceback__
        super().failed(error)


class LocalJob:
    """A single job, run here. After `run`, either `output` is the job's output or `error` says why there is
    none. `retired` is why the worker would be replaced after the job, if it would.

    `on_progress` and `on_chunk` are called with each value as it is sent; calling `cancel` from them scripts
    a cancel at an exact point. `scratch` is the handler's folder, made when it is first used. Without
    it, that is a temporary folder, removed with this object.

    `saves` are what the handler saved; with `saved`, one of an earlier run, the job goes on from there.
    `yielded`: it saved and gave up its place, as `ask_to_yield` requests.
    `s3_config` is what the handler finds at `job.s3_config`. `job.fetch` takes a path or a file:// URL here;
    http and https only with `network=True`, and unguarded. `files` are the paths where it finds URLs, by the
    URL without its query; an empty path: it cannot be had. `on_case` is called with the facts that
    a platform would keep of a job that fails: when the handler begins, after each fetch, and when it raises.
    """

    def __init__(
        self,
        handler: Any,
        input: Any = None,  # noqa: A002  # the word of the domain
        *,
        device: Device | None = None,
        scratch: str | os.PathLike[str] | None = None,
        on_progress: Callable[[Any], None] | None = None,
        on_chunk: Callable[[Any], None] | None = None,
        network: bool = False,
        s3_config: Mapping[str, str] | None = None,
        saved: LocalSave | None = None,
        files: Mapping[str, str | os.PathLike[str]] | None = None,
        on_case: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.progress: list[Any] = []
        self.chunks: list[Any] = []
        self.saves: list[LocalSave] = []
        self.files: list[LocalFile] = []
        self.metrics: dict[str, int] = {}
        self._output: Any = None
        self.error: str | None = None
        self.retryable = False
        self.finished = False
        self.yielded = False
        self.retired: str | None = None
        self._given = saved
        self._registration = register(handler)
        self._device = device or Device()
        self._on_progress, self._on_chunk, self._on_case = on_progress, on_chunk, on_case
        self._network = network
        self._found = {url: os.fspath(path) for url, path in (files or {}).items()}
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._scratch = Path(scratch).absolute() if scratch is not None else self._own_scratch()
        fields: dict[str, Any] = {"job": "local", "attempt": 1, "scratch": str(self._scratch)}
        more: dict[str, Any] = {} if s3_config is None else {"s3Config": dict(s3_config)}
        if on_case is not None:
            more["case"] = True
        body = json.dumps({} if input is None else input).encode()
        if saved is not None:
            more["saved"] = {"input": len(body), "upto": saved.upto, "kept": True}
            body += saved.body
        if more:
            fields["more"] = more
        self._attempt = _Attempt(Frame("run", fields, body), self)

    def run(self) -> LocalJob:
        """Runs the job to its end. Exceptions of a class while it is created or set up pass through."""
        if self._registration.is_async:
            import asyncio

            asyncio.run(self.run_async())
            return self
        call = prepare(self._registration, self._device)
        run_attempt(call, self._attempt, aggregate=self._registration.aggregate)
        return self

    async def run_async(self) -> LocalJob:
        """Runs an asynchronous handler's job to its end, on the loop that is running."""
        import asyncio

        from stoker.worker.serving import async_loop
        from stoker.worker.setup.preparation import prepare_async

        if not self._registration.is_async:
            raise TypeError(f"{self._registration.name} is not asynchronous; use run()")
        call = await prepare_async(self._registration, self._device)
        aggregate = self._registration.aggregate
        running = async_loop.run_attempt(call, self._attempt, aggregate=aggregate)
        task = asyncio.ensure_future(running)
        self._task = (asyncio.get_running_loop(), task)
        await task
        return self

    @property
    def scratch(self) -> Path:
        """The folder that the handler finds at `job.scratch`."""
        self._scratch.mkdir(mode=0o700, exist_ok=True)
        return self._scratch

    @property
    def output(self) -> Any:
        """Returns the job's output; None before the job has run. Raises what the handler raised, if it did;
        what is not an Exception (`sys.exit`, a cancel) and what the platform refused is raised as
        HandlerError.
        """
        raised = self._attempt.raised
        if self.error is None:
            return self._output
        if isinstance(raised, Exception):
            raise raised.with_traceback(self._attempt.trace)
        raise HandlerError(self.error, retryable=self.retryable) from raised

    def result(self) -> Any:
        """Returns the output. Raises HandlerError with the platform's text, `error`, when the job failed."""
        if self.error is not None:
            raise HandlerError(self.error, retryable=self.retryable)
        return self._output

    def cancel(self, reason: str = "cancelled by the test") -> None:
        """Cancels the job, as the platform would: before it runs, from a callback, or from another thread."""
        first = self._attempt.cancel_reason is None
        self._attempt.cancel(reason)
        if first and self._task is not None:
            loop, task = self._task
            loop.call_soon_threadsafe(task.cancel)

    def ask_to_yield(self, reason: str = "asked by the test") -> None:
        """Asks the job to yield, as the platform would: its next save ends it, and `yielded` is true. Call it
        before the job runs, from a callback, or from another thread."""
        self._attempt.told(Frame("yield", {"reason": reason}))

    def send(self, frame: Frame) -> None:
        """Collects the frame, within the platform's limits; called by the runtime (see `attempt.Link`)."""
        _, fds = encode(Frame(frame.kind, frame.fields, frame.body))
        for fd in fds:
            os.close(fd)
        getattr(self, f"_take_{frame.kind}")(frame)

    def poll(self) -> None:
        """Does nothing, since `cancel` reaches the attempt directly; called by the runtime."""

    receives_in_background = True

    def wait(self, done: Callable[[], bool]) -> None:
        """Does nothing, since a fetch is answered at once; called by the runtime."""

    def _take_fetch(self, frame: Frame) -> None:
        from stoker.worker.job.local_fetch import fetched_locally

        def fetch() -> None:
            self._attempt.answered(fetched_locally(frame, network=self._network, files=self._found))

        if self._task is None:
            fetch()
        else:
            threading.Thread(target=fetch, name="fetch").start()

    def _take_progress(self, frame: Frame) -> None:
        self.progress.append(json.loads(frame.body))
        if self._on_progress is not None:
            self._on_progress(self.progress[-1])

    def _take_chunk(self, frame: Frame) -> None:
        body = frame.body if frame.fd is None else Path(f"/proc/self/fd/{frame.fd}").read_bytes()
        self.chunks.append(json.loads(body))
        if self._on_chunk is not None:
            self._on_chunk(self.chunks[-1])

    def _take_case(self, frame: Frame) -> None:
        if self._on_case is not None:
            self._on_case(json.loads(frame.body))

    def _take_save(self, frame: Frame) -> None:
        before, upto = () if self._given is None else self._given.kept, frame.fields["upto"]
        kept = None if before is None else (*before, *self.chunks)[:upto]
        whole = kept is not None and len(kept) == upto  # a test that needs no chunks may clear them
        self.saves.append(LocalSave(frame.body, upto, kept if whole else None))

    def _take_kept(self, frame: Frame) -> None:
        given = () if self._given is None else self._given.kept
        if given is None:
            self._attempt.answered(Frame("fetch_failed", {**frame.fields, **_NO_KEPT}))
            return
        values = given[frame.fields["first"] :][:_PAGE]
        self._attempt.answered(kept_page(frame.fields, [json.dumps(value).encode() for value in values]))

    def _take_file(self, frame: Frame) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{frame.fd}"))
        self.files.append(LocalFile(path, frame.fields["name"], frame.fields["media_type"]))

    def _take_done(self, frame: Frame) -> None:
        body = frame.body
        if frame.fields.get("in_file"):
            body = self.files.pop().path.read_bytes()
        self._output = self._with_files(json.loads(body)) if frame.fields["has_output"] else None
        self.metrics = dict(frame.fields["metrics"])
        self.finished = True

    def _take_failed(self, frame: Frame) -> None:
        self.error = frame.fields["error"]
        self.retryable = frame.fields["retryable"]
        self.yielded = frame.fields.get("yielded", False)
        self.finished = True

    def _take_retire(self, frame: Frame) -> None:
        self.retired = frame.fields["reason"]

    def _with_files(self, value: Any) -> Any:
        """Returns the value with each file mark replaced by its LocalFile."""
        if isinstance(value, dict):
            if FILE_MARK in value:
                return self.files[value[FILE_MARK]]
            return {key: self._with_files(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._with_files(item) for item in value]
        return value

    def _own_scratch(self) -> Path:
        folder = os.path.join(tempfile.gettempdir(), f"stoker-{os.urandom(8).hex()}")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)
