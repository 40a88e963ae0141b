"""A Spawner without processes, for tests and the simulation: scripts decide what its workers do.

The `Start` of an endpoint decides how its workers start. The input of a job is a script:

    {"output": {"ok": 1}}                          returns the output; an input without script keys is echoed
    {"run_s": 3, "progress": [1, 2], "chunks": ["a"]}   spread evenly over the job's time
    {"error": "no such file", "retryable": true}   fails
    {"exit": -9}                                   the process ends after `run_s`
    {"run_s": 60, "ignore_cancel": true, "ignore_term": true}      hangs in native code
    {"log": ["loading", "done"]}                   printed at the start of the job
    {"slots": 2}                                   the worker sets its number of slots at the start of the job
    {"chunks": [{"characters": 3000000}, "b"]}     a chunk of that size; the job waits until it is received
    {"chunks": ["a", "b"], "saves": 1}             saves after each (2: every other); `output.made` has all
    {"files": [{"name": "a.png", "content": "..."}], "output": {"url": {"$file": 0}}, "metrics": {"pixel": 5}}

An attempt that goes on from a save reads the chunks that are kept, where it can; a refusal fails it.

A run that was sent ahead begins when the running job has ended, with a permission from the pipe that came
with the setup frame, as in a real worker.

It behaves like a real spawner: frames are in order, none comes before `spawn` returned, and `on_exit` is
called once and last. It uses no threads and no clock but the loop's. `vanish` simulates a kill -9 of the
agent.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from stoker.agent.alarm import loop_time
from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs.tail import LogTail
from stoker.agent.interfaces import WorkerExit, WorkerWatcher
from stoker.wire.messages import AttemptKey, Device, WorkerSpec
from stoker.worker.frames import Frame, kept_values, waits_for_took
from stoker.worker.job.saves import packed, unpacked

PIECE = "piece"
"""The metric of a job that saves: one for each chunk, through all attempts."""

SCRIPT_KEYS = {
    "run_s",
    "output",
    "error",
    "retryable",
    "exit",
    "progress",
    "chunks",
    "files",
    "metrics",
    "log",
    "saves",
    "save_bytes",
    "case",
}
SCRIPT_KEYS |= {"slots", "ignore_cancel", "ignore_term"}
EXIT_S = 0.001
"""How long a process takes to end and be reaped."""


@dataclass(frozen=True, slots=True)
class Start:
    """The way in which workers of an endpoint start. `exit`: a worker ends with this status instead of
    becoming ready."""

    ready_s: float | None = 0.01
    spawn_error: str | None = None
    setup_error: str | None = None
    exit: int | None = None
    log_tail: tuple[str, ...] = ()
    ignore_term: bool = False
    serves: str = ""
    stages_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    key: AttemptKey
    script: dict[str, Any]
    steps: deque[Frame] = field(default_factory=deque)
    cancelled: bool = False
    last: str = ""
    upto: int = 0
    kept: list[object] = field(default_factory=list)
    made: int = 0


class FakeSpawner:
    """The spawner of workers without processes. `starts` is by endpoint and may be changed at any time;
    `processes` are those that run."""

    def __init__(self, starts: Mapping[str, Start] | None = None) -> None:
        self.starts = dict(starts or {})
        self.processes: list[FakeProcess] = []
        self.spawned: list[FakeProcess] = []

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> FakeProcess:
        start = self.starts.get(spec.endpoint, Start())
        if start.spawn_error is not None:
            raise SpawnFailed(start.spawn_error)
        process = FakeProcess(1000 + len(self.spawned), spec, start, watcher, self.processes.remove)
        self.processes.append(process)
        self.spawned.append(process)
        return process

    def of(self, worker: str) -> FakeProcess:
        """Returns the running process of a worker."""
        return next(process for process in self.processes if process.spec.worker == worker)

    def vanish(self) -> None:
        """Ends all processes without calling `on_exit`."""
        for process in list(self.processes):
            process.vanish()

    async def close(self) -> None:
        for process in list(self.processes):
            process.kill()
        await asyncio.gather(*(process.reaped.wait() for process in self.spawned if not process.gone))


class FakeProcess:
    """The process of a fake worker. `sent` has all frames that the agent sent, `signals` all signals."""

    def __init__(
        self,
        pid: int,
        spec: WorkerSpec,
        start: Start,
        watcher: WorkerWatcher,
        on_gone: Callable[[FakeProcess], None],
    ) -> None:
        self._pid = pid
        self.spec = spec
        self.sent: list[Frame] = []
        self.signals: list[str] = []
        self.gone = False
        self.alive = True
        self.paused = False
        self.reaped = asyncio.Event()
        self._start = start
        self._watcher = watcher
        self._on_gone = on_gone
        self._jobs: dict[AttemptKey, _Job] = {}
        self._unread: deque[Frame] = deque()
        self.tail, self.image_id = LogTail(loop_time), ""
        self._ahead: deque[Frame] = deque()
        self._asked: set[AttemptKey] = set()
        self._permissions: int | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._exit: WorkerExit | None = None
        self._context = copy_context()
        """Callbacks run in the context of the process that spawned this one, whoever causes them."""

    @property
    def pid(self) -> int:
        return self._pid

    # -- what the agent does

    def send(self, frame: Frame) -> None:
        if self._exit is not None or self.gone:
            return
        self.sent.append(frame)
        match frame.kind:
            case "setup":
                self._permissions = None if frame.fd is None else os.dup(frame.fd)
                self._setup()
            case "run" if "ahead" in frame.fields:
                self._ahead.append(frame)
                self._after(0.0, self._next)
            case "run":
                self._ahead.clear()  # they were withdrawn
                self._run(frame)
            case "cancel":
                self._after(0.0, self._cancel, AttemptKey(frame.job, frame.attempt))
            case "yield":
                self._asked.add(AttemptKey(frame.job, frame.attempt))
            case "kept_page" | "fetch_failed":
                self._after(0.0, self._take_kept, frame)
            case "took":
                self._after(0.0, self._play, self._jobs.get(AttemptKey(frame.job, frame.attempt)))
            case "stop":
                self._stops()

    def print_lines(self, *lines: str) -> None:
        self.tail.feed("".join(f"{line}\n" for line in lines).encode())

    def terminate(self) -> None:
        self.signals.append("TERM")
        stubborn = any(job.script.get("ignore_term") for job in self._jobs.values())
        if not self._start.ignore_term and not stubborn:
            self.exit(-15, "killed by SIGTERM")

    def kill(self) -> None:
        self.signals.append("KILL")
        self.exit(-9, "killed by SIGKILL")

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._after(0.0, self._deliver)

    # -- what tests and scripts do

    def exit(self, status: int, reason: str = "") -> None:
        """Ends the process."""
        if self._exit is not None or self.gone:
            return
        self._silence()
        self._jobs.clear()
        self._close()
        tail = self._start.log_tail
        self._exit = WorkerExit(status, reason or f"exited with status {status}", tail)
        self._after(EXIT_S, self._reap)

    def vanish(self) -> None:
        self._silence()
        self._jobs.clear()
        self._unread.clear()
        self._close()
        self._leave()

    def _close(self) -> None:
        self._ahead.clear()
        if self._permissions is not None:
            os.close(self._permissions)
            self._permissions = None

    def emit(self, frame: Frame) -> None:
        """Sends a frame to the agent."""
        self._unread.append(frame)
        self._after(0.0, self._deliver)

    def _reap(self) -> None:
        assert self._exit is not None
        self.alive = self.paused = False
        self._deliver()
        self._leave()
        self._watcher.on_exit(self._exit)

    def _leave(self) -> None:
        self.gone = True
        self._on_gone(self)
        self.reaped.set()

    def _deliver(self) -> None:
        while self._unread and not self.paused:
            self._hand_over(self._unread.popleft())

    def _hand_over(self, frame: Frame) -> None:
        """Passes a frame to the agent. The simulation overrides this method to look at what the agent
        receives."""
        self._watcher.on_frame(frame)

    def _after(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        def run() -> None:
            self._timers.discard(handle)
            call(*args)

        handle = asyncio.get_running_loop().call_later(delay, run, context=self._context)
        self._timers.add(handle)

    def _silence(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # -- its script

    def _setup(self) -> None:
        start = self._start
        delay = start.ready_s or 0.0
        if start.exit is not None:
            self._after(delay, self.exit, start.exit)
        elif start.setup_error is not None:
            self._after(delay, self.emit, Frame("setup_failed", {"error": start.setup_error}))
        elif start.ready_s is not None:
            fields = {
                "stages_ms": dict(start.stages_ms),
                "concurrency": self.spec.concurrency,
                "generator": False,
                **({"serves": start.serves} if start.serves else {}),
                **({} if self._permissions is None else {"ahead": 8}),
            }
            self._after(delay, self.emit, Frame("ready", fields))

    def _stops(self) -> None:
        """Ends after the running jobs, like a real worker."""
        if not self._jobs and not self._start.ignore_term:
            self.exit(0)

    def _next(self) -> None:
        """Begins what was sent ahead, unless it was withdrawn."""
        while self._ahead and not self._jobs:
            frame = self._ahead.popleft()
            if self._may_begin():
                self._run(frame)

    def _may_begin(self) -> bool:
        try:
            return self._permissions is not None and os.read(self._permissions, 1) != b""
        except BlockingIOError:
            return False

    def _run(self, frame: Frame) -> None:
        value, kept = _input(frame)
        scripted = isinstance(value, dict) and bool(value) and value.keys() <= SCRIPT_KEYS
        job = _Job(AttemptKey(frame.job, frame.attempt), value if scripted else {"output": value})
        self._jobs[job.key] = job
        script = job.script
        self.print_lines(*script.get("log", ()))
        if "slots" in script:
            self.emit(Frame("slots", {"n": script["slots"]}))
        for value in script.get("progress", ()):
            job.steps.append(self._about(job, "progress", value))
        if "case" in script:
            job.steps.append(self._about(job, "case", script["case"]))
        saved = frame.fields.get("more", {}).get("saved", {})
        if saved:
            job.made = unpacked(frame.body[saved["input"] :])[1].get(PIECE, 0)
        if "kept" in saved and "saves" in script:
            job.upto = saved["upto"]
        if job.upto:
            self._ask_kept(job)
        else:
            self._go_on(job, kept)

    def _ask_kept(self, job: _Job) -> None:
        about = {"job": job.key.job, "attempt": job.key.attempt}
        self.emit(Frame("kept", {**about, "n": len(job.kept), "first": len(job.kept)}))

    def _take_kept(self, frame: Frame) -> None:
        job = self._jobs.get(AttemptKey(frame.job, frame.attempt))
        if job is None or len(job.kept) >= job.upto:
            return
        if frame.kind == "fetch_failed":
            del self._jobs[job.key]
            self.emit(self._failed(job, frame.fields["error"], frame.fields["retryable"]))
            return
        job.kept += map(json.loads, kept_values(frame))
        if len(job.kept) < job.upto:
            self._ask_kept(job)
        else:
            self._go_on(job, job.kept)

    def _go_on(self, job: _Job, kept: list[object]) -> None:
        self._plan_chunks(job, kept)
        self._after(float(job.script.get("run_s", 0.0)) / (len(job.steps) + 1), self._play, job)

    def _plan_chunks(self, job: _Job, kept: list[object]) -> None:
        """Plans the chunks after those that are `kept`, and the saves: each has all chunks until then."""
        made, every, saves = kept, job.script.get("saves", 0), 0
        for n, value in enumerate(job.script.get("chunks", ())):
            if n < len(kept):
                continue
            job.steps.append(self._about(job, "chunk", _chunk(value), n=n))
            made, job.made = [*made, value], job.made + 1
            if every and (n + 1) % every == 0:
                state = json.dumps(made).encode() + b" " * job.script.get("save_bytes", 0)
                about = {"job": job.key.job, "attempt": job.key.attempt, "n": saves, "upto": n + 1}
                job.steps.append(Frame("save", about, packed(state, {PIECE: job.made})))
                saves += 1
        if every and isinstance(job.script.get("output"), dict):
            job.script = {**job.script, "output": {**job.script["output"], "made": made}}

    def _play(self, job: _Job | None) -> None:
        if job is None or job.key not in self._jobs:
            return
        run_s = float(job.script.get("run_s", 0.0))
        while not self._yields(job) and job.steps:
            step = job.steps.popleft()
            job.last = step.kind
            self.emit(step)
            if waits_for_took(step):
                return  # it continues when the chunk is received
            if run_s and step.kind != "save":
                frames = len(job.script.get("progress", ())) + len(job.script.get("chunks", ()))
                self._after(run_s / (frames + 1), self._play, job)
                return
        if job.key in self._jobs:
            self._finish(job)

    def _yields(self, job: _Job) -> bool:
        """Ends a job that was asked to yield and has just saved."""
        if job.last != "save" or job.key not in self._asked:
            return False
        del self._jobs[job.key]
        self._after(0.0, self._next)
        about = {"job": job.key.job, "attempt": job.key.attempt, "retryable": True, "yielded": True}
        self.emit(Frame("failed", {**about, "error": "yielded"}))
        return True

    def _finish(self, job: _Job) -> None:
        script = job.script
        if script.get("exit") is not None:
            self.exit(int(script["exit"]))
            return
        del self._jobs[job.key]
        self._after(0.0, self._next)
        if "error" in script:
            self.emit(self._failed(job, script["error"], script.get("retryable", False)))
            return
        files = script.get("files", ())
        for n, file in enumerate(files):
            self.emit(self._file(job, n, file))
        measured = {PIECE: job.made} if "saves" in script else {}
        fields = {"files": len(files), "metrics": script.get("metrics", measured), "has_output": True}
        self.emit(self._about(job, "done", script.get("output"), **fields))

    def _cancel(self, key: AttemptKey) -> None:
        job = self._jobs.get(key)
        if job is not None and not job.script.get("ignore_cancel"):
            del self._jobs[key]
            self._after(0.0, self._next)
            self.emit(self._failed(job, "cancelled", False))

    def _about(self, job: _Job, kind: str, body: object, **fields: object) -> Frame:
        about = {"job": job.key.job, "attempt": job.key.attempt, **fields}
        return Frame(kind, about, json.dumps(body).encode())

    def _failed(self, job: _Job, error: str, retryable: bool) -> Frame:
        about = {"job": job.key.job, "attempt": job.key.attempt, "error": error, "retryable": retryable}
        return Frame("failed", about)

    def _file(self, job: _Job, n: int, file: Mapping[str, str]) -> Frame:
        fd = os.memfd_create(file["name"], os.MFD_CLOEXEC)
        os.write(fd, file.get("content", "").encode())
        media_type = file.get("media_type", "application/octet-stream")
        about = {"job": job.key.job, "attempt": job.key.attempt, "n": n, "name": file["name"]}
        return Frame("file", {**about, "media_type": media_type}, fd=fd)


def _input(frame: Frame) -> tuple[Any, list[object]]:
    """Returns the input, and the chunks that are kept where the attempt goes on from a save."""
    saved = frame.fields.get("more", {}).get("saved")
    if saved is None:
        return json.loads(frame.body), []
    kept = json.loads(unpacked(frame.body[saved["input"] :])[0])
    assert len(kept) == saved["upto"], f"a save of {len(kept)} chunks is to cover {saved['upto']}"
    return json.loads(frame.body[: saved["input"]]), kept


def _chunk(value: object) -> object:
    if isinstance(value, dict) and value.keys() == {"characters"}:
        return "x" * int(value["characters"])
    return value
