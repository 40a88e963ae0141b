"""One attempt says exactly one end, and closes what it opened."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from stoker.worker import File, FileRefused, Job, OutputError
from stoker.worker.errors import Cancelled, JobOver
from stoker.worker.frames import HEADER_MAX, Frame, FrameError
from stoker.worker.job.attempt import STOPPED, Attempt
from stoker.worker.serving import async_loop, sync_loop


class Recorder:
    """A link that keeps what is sent. `cancel_at` cancels the attempt with its first frame of that kind."""

    def __init__(self, cancel_at: str = "", scratch: str = "/nowhere/j.1", stop_after: int = 0) -> None:
        self.sent: list[Frame] = []
        more = {"more": {"stop_after": stop_after}} if stop_after else {}
        fields = {"job": "j", "attempt": 1, "scratch": scratch, **more}
        self.attempt = Attempt(Frame("run", fields, b"{}"), self)
        self._cancel_at = cancel_at

    def send(self, frame: Frame) -> None:
        if len(frame.body) > HEADER_MAX:
            raise FrameError("too large")
        self.sent.append(frame)
        if frame.kind == self._cancel_at:
            self.attempt.cancel("now")

    def poll(self) -> None: ...

    @property
    def kinds(self) -> list[str]:
        return [frame.kind for frame in self.sent]


def test_the_first_end_wins() -> None:
    link = Recorder()
    link.attempt.done({"a": 1})
    link.attempt.failed(ValueError("too late"))
    with pytest.raises(JobOver, match="the job j is over; no done can be sent for it any more"):
        link.attempt.done(None)
    assert link.kinds == ["done"]


class TakenMeanwhile(dict[int, "Future[Frame]"]):
    """Whoever looks into it finds it full, and empty a moment later: another thread was faster."""

    def __len__(self) -> int:
        length = super().__len__()
        self.clear()
        return length

    def __iter__(self) -> Iterator[int]:
        self.clear()
        return super().__iter__()

    def popitem(self) -> tuple[int, Future[Frame]]:
        self.clear()
        return super().popitem()


def test_a_cancel_and_an_end_at_once_give_up_what_is_waited_for_once() -> None:
    link = Recorder()
    link.attempt._waiting = TakenMeanwhile({0: Future()})
    link.attempt.cancel("by its caller")
    link.attempt.failed(ValueError("told"))
    assert link.kinds == ["failed"]


def test_an_output_that_is_too_large_leaves_the_attempt_open_for_its_failure() -> None:
    link = Recorder()
    with pytest.raises(OutputError, match="too large"):
        link.attempt.done("x" * (HEADER_MAX + 1))
    link.attempt.failed(ValueError("told"))
    assert link.kinds == ["failed"]


def test_a_cancelled_generator_is_closed_where_somebody_keeps_it() -> None:
    ended = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            ended.append(True)

    kept, link = numbers(), Recorder(cancel_at="chunk")
    sync_loop.run_attempt(lambda job: kept, link.attempt, aggregate=False)
    assert (link.kinds, ended) == (["chunk", "failed"], [True])


async def test_an_async_generator_whose_chunk_is_refused_is_closed_where_somebody_keeps_it() -> None:
    ended = []

    async def numbers() -> AsyncIterator[object]:
        try:
            yield object()
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    kept, link = numbers(), Recorder()
    await async_loop.run_attempt(lambda job: kept, link.attempt, aggregate=False)
    assert (link.kinds, ended) == (["failed"], [True])


def test_a_job_is_what_its_attempt_says(tmp_path: Path) -> None:
    link = Recorder(scratch=str(tmp_path))
    job = Job(link.attempt, {"x": 1})
    assert (job.id, job.attempt, job.input, job.scratch) == ("j", 1, {"x": 1}, tmp_path)


# ---- the scratch folder


def test_a_scratch_folder_is_made_when_it_is_first_requested(tmp_path: Path) -> None:
    attempt = Recorder(scratch=str(tmp_path / "j.1")).attempt
    attempt.emit({"no": "file"})
    assert os.listdir(tmp_path) == []
    folder = Job(attempt, {}).scratch
    assert folder == tmp_path / "j.1"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.rmdir()
    assert Job(attempt, {}).scratch == folder
    assert os.listdir(tmp_path) == [], "what a handler removed stays removed"


def test_a_handler_that_never_asks_for_a_folder_leaves_none(tmp_path: Path) -> None:
    outside = tmp_path / "x"
    outside.write_text("x")
    attempt = Recorder(scratch=str(tmp_path / "j.1")).attempt
    with pytest.raises(FileRefused, match="x lies outside the job's scratch folder"):
        attempt.done({"file": File(outside)})
    attempt.done({"a": 1})
    assert os.listdir(tmp_path) == ["x"]


def test_a_thread_that_outlives_its_attempt_makes_no_folder(tmp_path: Path) -> None:
    """The agent has removed it by then."""
    attempt = Recorder(scratch=str(tmp_path / "j.1")).attempt
    attempt.done(None)
    assert Job(attempt, {}).scratch == tmp_path / "j.1"
    assert os.listdir(tmp_path) == []


def test_a_handler_that_went_elsewhere_gets_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    attempt = Recorder(scratch=str(tmp_path / "j.1")).attempt
    monkeypatch.chdir(elsewhere)
    Job(attempt, {}).scratch.rmdir()
    assert os.listdir(elsewhere) == []


def test_a_folder_that_cannot_be_made_is_no_fault_of_the_handlers(tmp_path: Path) -> None:
    link = Recorder(scratch=str(tmp_path / "none" / "j.1"))
    sync_loop.run_attempt(lambda job: str(job.scratch), link.attempt, aggregate=False)
    assert link.sent[0].fields["error"] == (
        "the job's scratch folder cannot be made: No such file or directory"
    )
    assert link.sent[0].fields["retryable"] is True


@pytest.mark.parametrize("kinds", ["pp", "cc", "pc", "cp"])
def test_an_attempt_is_stopped_at_the_report_that_was_named(kinds: str) -> None:
    link = Recorder(stop_after=2)
    say = {"p": lambda: link.attempt.progress(1), "c": lambda: link.attempt.emit(1)}
    say[kinds[0]]()
    with pytest.raises(Cancelled, match=STOPPED):
        say[kinds[1]]()
    assert len(link.sent) == 2
    link.attempt.failed(Cancelled(STOPPED))
    assert STOPPED in link.sent[-1].fields["error"]


def test_a_generator_is_stopped_and_closed_at_the_chunk_that_was_named() -> None:
    link, closed = Recorder(stop_after=2), []

    def handler(job: Job) -> Iterator[int]:
        try:
            yield from range(5)
        finally:
            closed.append(job.id)

    sync_loop.run_attempt(handler, link.attempt, aggregate=False)
    assert link.kinds == ["chunk", "chunk", "failed"]
    assert closed == ["j"]
