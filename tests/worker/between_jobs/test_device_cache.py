"""What a stopped job leaves in torch's cache is given back before its end is told, and nothing else is."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.worker import Job
from stoker.worker.frames import Frame
from stoker.worker.job.attempt import Attempt
from stoker.worker.serving import async_loop, sync_loop


class Tensor:
    pass


class Torch:
    """What a worker sees of it. `held`: tensors that lived when its cache was emptied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, started: bool = True) -> None:
        self.held: list[int] = []
        self.tensors: list[weakref.ref[Tensor]] = []
        self.broken = False
        cuda = SimpleNamespace(is_initialized=lambda: started, empty_cache=self._empty)
        monkeypatch.setitem(sys.modules, "torch.cuda", cuda)  # type: ignore[arg-type]

    def tensor(self) -> Tensor:
        made = Tensor()
        self.tensors.append(weakref.ref(made))
        return made

    def _empty(self) -> None:
        if self.broken:
            raise RuntimeError("CUDA error: unspecified launch failure")
        self.held.append(sum(ref() is not None for ref in self.tensors))


class Link:
    def __init__(self, torch: Torch) -> None:
        self.attempt = Attempt(Frame("run", {"job": "j", "attempt": 1, "scratch": "/nowhere"}, b"{}"), self)
        self.sent: list[tuple[str, int]] = []
        self._torch = torch

    def send(self, frame: Frame) -> None:
        """Keeps what is told, and how often the cache had been emptied by then."""
        self.sent.append((frame.kind, len(self._torch.held)))

    def poll(self) -> None: ...


def run(torch: Torch, handler: Callable[[Job], Any]) -> Link:
    link = Link(torch)
    sync_loop.run_attempt(handler, link.attempt, aggregate=False)
    return link


def test_a_cancelled_job_gives_back_what_its_frames_held(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch(monkeypatch)

    def handler(job: Job) -> None:
        activations = torch.tensor()
        link.attempt.cancel("cancelled")
        job.raise_if_cancelled()
        print(activations)

    link = Link(torch)
    sync_loop.run_attempt(handler, link.attempt, aggregate=False)
    assert torch.held == [0]
    assert link.sent == [("failed", 1)]


@pytest.mark.parametrize(
    "by", ["cancelled, while another error was handled", "cancelled, because of another error"]
)
def test_what_the_frames_of_an_error_before_it_held_is_returned(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """A loop that is stopped deep within a network: the job's own end is raised where that is caught."""
    torch = Torch(monkeypatch)

    def network() -> None:
        activations = torch.tensor()
        raise LookupError(activations is None)

    def handler(job: Job) -> None:
        link.attempt.cancel("cancelled")
        try:
            network()
        except LookupError as stopped:
            if "because" in by:
                raise RuntimeError("it was stopped") from stopped
            job.raise_if_cancelled()

    link = Link(torch)
    sync_loop.run_attempt(handler, link.attempt, aggregate=False)
    assert torch.held == [0]


async def test_an_asynchronous_one_does_too(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch(monkeypatch)
    link = Link(torch)

    async def handler(job: Job) -> None:
        activations = torch.tensor()
        await asyncio.Event().wait()
        print(activations)

    task = asyncio.create_task(async_loop.run_attempt(handler, link.attempt, aggregate=False))
    await asyncio.sleep(0)
    link.attempt.cancel("cancelled")
    task.cancel()
    await task
    assert torch.held == [0]
    assert link.sent == [("failed", 1)]


def test_a_job_that_completes_although_it_was_cancelled_does_too(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch(monkeypatch)

    def handler(job: Job) -> int:
        link.attempt.cancel("cancelled")
        return 1

    link = Link(torch)
    sync_loop.run_attempt(handler, link.attempt, aggregate=False)
    assert link.sent == [("done", 1)]


def test_a_job_that_ends_by_itself_keeps_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch(monkeypatch)

    def fails(job: Job) -> None:
        raise ValueError("no")

    assert run(torch, fails).sent == [("failed", 0)]
    assert run(torch, lambda job: 1).sent == [("done", 0)]


def test_a_torch_that_has_not_started_cuda_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch(monkeypatch, started=False)
    link = Link(torch)
    link.attempt.cancel("cancelled")
    sync_loop.run_attempt(lambda job: 1, link.attempt, aggregate=False)
    assert link.sent == [("failed", 0)]


def test_a_device_that_answers_no_more_does_not_keep_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = Torch(monkeypatch)
    torch.broken = True
    link = Link(torch)
    link.attempt.cancel("cancelled")
    sync_loop.run_attempt(lambda job: 1, link.attempt, aggregate=False)
    assert link.sent == [("failed", 0)]
    assert "could not be given back" in capsys.readouterr().err
