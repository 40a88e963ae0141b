"""Real processes on the test's loop, and proof at the end of each test that none is left."""

from __future__ import annotations

import asyncio
import inspect
import os
import select
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.interfaces import WorkerExit
from stoker.agent.workers.processes.local_spawner import LocalProcess, LocalSpawner
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame
from tests.children import children

BODY_READER = "a body from a worker"
HANDLERS = Path(__file__).parents[1] / "handlers"

PROLOGUE = """
import json, os, signal, socket, subprocess, sys
from stoker.worker.frames import Frame, FrameReader, encode, with_body
sock = socket.socket(fileno=int(sys.argv[2]))
def say(kind, body=b"", fd=None, **fields):
    data, fds = encode(Frame(kind, fields, body, fd))
    sent = socket.send_fds(sock, [data], fds)
    sock.sendall(data[sent:])
reader = FrameReader()
def forever():
    while True:
        signal.pause()
def hear():
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 65536, 8)
        for frame in reader.feed(data, fds):
            return with_body(frame)
        if not data:
            raise SystemExit("the agent is gone")
"""


class Watcher:
    """Keeps what it hears; a test waits for the next frame or for the exit."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()
        self.broken: list[str] = []
        self.process: Any = None
        self.exits: list[WorkerExit] = []
        self.exit: asyncio.Future[WorkerExit] = asyncio.get_running_loop().create_future()

    def on_frame(self, frame: Frame) -> None:
        assert not self.exits, "a frame after the exit"
        self.frames.put_nowait(frame)

    def on_broken(self, why: str) -> None:
        """As the agent does: it is killed."""
        self.broken.append(why)
        self.process.kill()

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        self.exits.append(exit)
        if not self.exit.done():
            self.exit.set_result(exit)

    async def next(self, kind: str) -> Frame:
        getting = asyncio.ensure_future(self.frames.get())
        await asyncio.wait([getting, self.exit], return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            getting.cancel()
            raise AssertionError(f"no {kind}: {self.exits}")
        frame = getting.result()
        assert frame.kind == kind, frame
        return frame


def _dedent(script: str) -> str:
    return inspect.cleandoc(script)


Start = Callable[..., tuple[LocalProcess, Watcher]]


@pytest.fixture
async def spawner(tmp_path: Path) -> AsyncIterator[LocalSpawner]:
    """Runs module `sinner`, which `start` writes."""
    made = LocalSpawner(tmp_path / "data", module="sinner")
    yield made
    await made.close()


@pytest.fixture
async def start(spawner: LocalSpawner, tmp_path: Path) -> Start:
    """`start(script)`: a worker that runs the script, with `say`, `hear` and `sock` at hand."""

    def start_script(script: str, **spec: Any) -> tuple[LocalProcess, Watcher]:
        written = tmp_path / "sinner.py.new"  # another worker may be reading the present one
        written.write_text(PROLOGUE + _dedent(script))
        written.rename(tmp_path / "sinner.py")
        env = {"PYTHONPATH": str(tmp_path), **spec.pop("env", {})}
        watcher = Watcher()
        fields = {"worker": "w1", "endpoint": "e", "version": 1, "handler": "module:handler", **spec}
        watcher.process = spawner.spawn(WorkerSpec(env=env, **fields), None, watcher)
        return watcher.process, watcher

    return start_script


@asynccontextmanager
async def at_work(host: Any, scratch: Path) -> AsyncIterator[None]:
    """The agent of a scripted host runs; none of its scratch folders is left when it has ended."""
    running = asyncio.create_task(host.agent.run())
    yield
    host.agent.stop()
    async with asyncio.timeout(100):
        await running
    assert os.listdir(scratch) == []
    for task in host.control._tasks:
        task.cancel()


@pytest.fixture
async def python_worker(tmp_path: Path) -> AsyncIterator[Callable[[str], tuple[LocalProcess, Watcher]]]:
    """`python_worker("outputs/echo")`: the real runtime with a handler of tests/handlers, set up."""
    spawner = LocalSpawner(tmp_path / "data")

    def start_handler(name: str) -> tuple[LocalProcess, Watcher]:
        handler = f"{HANDLERS / name}.py:handler"
        watcher = Watcher()
        process = spawner.spawn(WorkerSpec("w1", "e", 1, handler), None, watcher)
        fields = {"handler": handler, "device": None, "concurrency": 1}
        process.send(Frame("setup", fields))
        return process, watcher

    yield start_handler
    await spawner.close()


@pytest.fixture
def new_watcher() -> type[Watcher]:
    return Watcher


@pytest.fixture
def prologue() -> str:
    return PROLOGUE


@pytest.fixture
def gone() -> Callable[[int], bool]:
    return _gone


def _gone(pid: int, within_s: float = 60.0) -> bool:
    """Whether the process ends; waits for it without looking twice."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], within_s)[0])
    finally:
        os.close(fd)


def descriptors() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return {one for one in found if "/proc/" not in one}


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """A worker's death does not wait for the thread that still reads a body of it: this does."""
    before, servers = descriptors(), children()
    yield
    for thread in threading.enumerate():
        if thread.name == BODY_READER:
            thread.join(60)
    left = descriptors() - before
    assert not left, f"descriptors left open: {sorted(left)}"
    assert children() <= servers  # of other folders' tests, kept for the session
