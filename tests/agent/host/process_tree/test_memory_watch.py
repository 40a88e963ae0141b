"""Looks at a worker's memory: beside the loop, one at a time, whatever holds that memory meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stoker.agent.host.process_tree import memory_watch, tree
from stoker.agent.host.process_tree.memory_watch import MemoryWatch

PATIENCE_S = 60.0
LIMIT = 1000


class Proc:
    """Stands for /proc: a look waits until `go` is set, and finds `held` bytes."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.looks, self.held = 0, 0

    def used(self, pid: int, file: str, names: Any) -> int:
        self.looks += 1
        self.begun.set()
        assert self.go.wait(PATIENCE_S)
        return self.held

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0)  # a thread sends no event here


@pytest.fixture
def proc(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proc]:
    made = Proc()
    monkeypatch.setattr(memory_watch, "used", made.used)
    monkeypatch.setattr(memory_watch, "LOOK_S", 0.0)
    yield made
    made.go.set()


async def turns_of_the_loop() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_look_that_hangs_holds_up_neither_the_loop_nor_a_second_thread(proc: Proc) -> None:
    over: list[bool] = []
    watch = MemoryWatch(LIMIT, lambda: [1], lambda: over.append(True))
    await proc.until(proc.begun.is_set)
    await turns_of_the_loop()
    assert proc.looks == 1, "they do not pile up"
    proc.go.set()
    await proc.until(lambda: proc.looks > 2)
    assert over == []
    proc.held = LIMIT + 1
    await proc.until(lambda: over)
    seen = proc.looks
    await turns_of_the_loop()
    assert (over, proc.looks) == ([True], seen), "once, and nobody looks on"
    watch.stop()


async def test_what_a_look_finds_after_the_end_is_not_reported(proc: Proc) -> None:
    watch = MemoryWatch(LIMIT, lambda: [1], lambda: pytest.fail("told of a worker that has ended"))
    await proc.until(proc.begun.is_set)
    watch.stop()
    proc.held = LIMIT + 1
    proc.go.set()
    await proc.until(lambda: "memory of a worker" not in [thread.name for thread in threading.enumerate()])
    await turns_of_the_loop()


async def test_a_host_without_a_thread_to_spare_is_looked_at_later(
    proc: Proc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, over = threading.Thread.start, asyncio.Event()

    def none_left(_: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    proc.held = LIMIT + 1
    proc.go.set()
    watch = MemoryWatch(LIMIT, lambda: [1], over.set)
    async with asyncio.timeout(PATIENCE_S):
        await over.wait()
    assert "is tried again: can't start new thread" in caplog.text
    watch.stop()


async def test_nobody_reads_the_environment_of_another_living_worker(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is in its memory, too, and what its driver holds is waited for."""
    marked, read = tree.marked, []

    def noted(pid: int, name: str, value: str) -> bool:
        read.append(pid)
        return marked(pid, name, value)

    workers = [start("say('ready'); forever()", worker=f"w{n}") for n in range(2)]
    for _, watcher in workers:
        await watcher.next("ready")
    monkeypatch.setattr(tree, "marked", noted)
    (first, first_watcher), (second, _) = workers
    first.kill()
    await first_watcher.exit
    assert second.pid not in read
