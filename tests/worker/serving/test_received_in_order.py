"""Several threads of a worker read its socket: no frame is lost to another thread or overtaken."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.worker.frames import Frame, FrameReader, encode
from stoker.worker.serving.async_loop import AsyncLoop
from stoker.worker.serving.channel import Channel
from stoker.worker.serving.slots import Slots
from stoker.worker.serving.sync_loop import SyncLoop

PATIENCE_S = 60.0
RUN = Frame("run", {"job": "j", "attempt": 1, "scratch": "/nowhere"}, b"null")
CANCEL = Frame("cancel", {"job": "j", "attempt": 1, "reason": "by its caller"})


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE_S)
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


class Receiving:
    """The channel's lock of that name. `waiting` is set when somebody is about to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting = threading.Event()
        self.owner = 0

    def acquire(self, blocking: bool = True) -> bool:
        if blocking:
            self.waiting.set()
        if got := self._lock.acquire(blocking):
            self.owner = threading.get_ident()
        return got

    def release(self) -> None:
        self.owner = 0
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Inbox(deque[Frame]):
    """Takes its first frame in only when the main thread has come to look, and where that may look at once,
    has seen that there is none."""

    def __init__(self, lock: Receiving) -> None:
        super().__init__()
        self._lock = lock
        self._empty = threading.Event()
        self.reached = threading.Event()

    def append(self, frame: Frame) -> None:
        self.reached.set()
        assert self._lock.waiting.wait(PATIENCE_S)
        assert self._lock.owner == threading.get_ident() or self._empty.wait(PATIENCE_S)
        super().append(frame)

    def __len__(self) -> int:
        self._empty.set()
        return super().__len__()


def test_a_job_that_a_left_behind_thread_sees_is_run(ends: tuple[Channel, socket.socket]) -> None:
    """It asked whether its own job, which ended in this moment, was cancelled."""
    channel, agent = ends
    lock = Receiving()
    channel._receiving = lock  # type: ignore[assignment]
    ran: list[str] = []
    loop = SyncLoop(channel, lambda job: ran.append(job.id), aggregate=False)
    inbox = loop._inbox = Inbox(lock)
    agent.sendall(encode(RUN)[0])
    left_behind = threading.Thread(target=loop.poll)
    left_behind.start()
    assert inbox.reached.wait(PATIENCE_S)
    main = threading.Thread(target=loop.serve, daemon=True)
    main.start()
    left_behind.join(PATIENCE_S)
    agent.sendall(encode(Frame("stop"))[0])
    main.join(PATIENCE_S)
    assert ran == [RUN.job]


def test_a_cancel_that_a_thread_receives_while_its_job_begins_is_received(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, agent = ends
    reported: list[object] = []
    loop = SyncLoop(channel, reported.append, aggregate=False)

    class Meanwhile(deque[Frame]):
        def __iter__(self) -> Iterator[Frame]:
            found = list(super().__iter__())
            loop._on_frame(CANCEL)  # another thread, just after this one has looked
            return iter(found)

    loop._inbox = Meanwhile([RUN, Frame("stop")])
    loop.serve()
    (failed,) = FrameReader().feed(agent.recv(65536))
    assert (failed.kind, reported) == ("failed", [])


async def test_a_cancel_does_not_overtake_its_run(ends: tuple[Channel, socket.socket]) -> None:
    """The run was heard by a thread that waited for its large chunk to be taken."""
    channel, agent = ends

    async def handler(_: Any) -> None:
        await asyncio.Event().wait()

    loop = AsyncLoop(channel, handler, Slots(2, None), aggregate=False)
    serving = asyncio.create_task(loop.serve())
    await asyncio.sleep(0)
    loop._on_frame(RUN)
    agent.sendall(encode(CANCEL)[0])
    loop._read()
    (failed,) = FrameReader().feed(await asyncio.to_thread(agent.recv, 65536))
    assert failed.kind == "failed"
    agent.sendall(encode(Frame("stop"))[0])
    await serving
