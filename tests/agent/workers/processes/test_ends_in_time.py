"""A disk or a driver that hangs under a thread of the agent's: the agent ends without it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.host.process_tree import memory
from stoker.agent.host.process_tree.memory import WorkerMemory
from stoker.agent.jobs.inputs import store as input_store
from stoker.agent.jobs.inputs.cache_policy import KnownUrl
from stoker.agent.jobs.inputs.store import InputStore
from stoker.testing.fake_host import FakeSampler


class Hangs:
    """A call that does not return before the test is over."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()

    def __call__(self, *_: Any) -> None:
        self.begun.set()
        self.over.wait(240)

    async def while_it_does(self, work: Coroutine[Any, Any, Any]) -> None:
        waiting = asyncio.ensure_future(work)
        while not self.begun.is_set():  # noqa: ASYNC110  # it is a thread that sets it
            await asyncio.sleep(0)
        waiting.cancel()


@pytest.fixture
def hangs() -> Iterator[Hangs]:
    made = Hangs()
    yield made
    made.over.set()


def ends(main: Coroutine[Any, Any, None]) -> bool:
    running = threading.Thread(target=asyncio.run, args=(main,), daemon=True)
    running.start()
    running.join(60)
    return not running.is_alive()


def test_of_an_input_that_is_read_again(
    tmp_path: Path, hangs: Hangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_store, "_read", hangs)
    store = InputStore(tmp_path, 1 << 20, lambda: 0.0)
    sha256, path = hashlib.sha256(b"input").hexdigest(), store.new_path()
    path.write_bytes(b"input")
    store.keep("url", path, KnownUrl(sha256, 5, "source", "", "", 0.0, 9.0))
    os.utime(tmp_path / "contents" / sha256, (1, 1))
    assert ends(hangs.while_it_does(store.open(sha256)))


def test_of_a_worker_whose_memory_is_looked_at(hangs: Hangs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "tree_memory", hangs)
    look = WorkerMemory(FakeSampler()).measure(os.getpid(), (), False)
    assert ends(hangs.while_it_does(look))
