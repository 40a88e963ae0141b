"""Real worker processes over a socketpair, and what no test may leave behind."""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stoker.worker.frames import Frame, FrameReader, encode, with_body

REPOSITORY = Path(__file__).resolve().parents[2]
HANDLERS = REPOSITORY / "tests" / "handlers"
PATIENCE_S = 100.0
DEVICE = {"uuid": "GPU-1", "kind": "gpu", "name": "a GPU", "index": 3}


class Agent:
    """The agent's end of one worker process."""

    def __init__(
        self, handler: str, scratch: Path, *, log: Path, own_session: bool, env: dict[str, str]
    ) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE_S)
        self.sock = ours
        self.log = log
        self.scratch = scratch
        self.handler = handler
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()
        with theirs, log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "stoker.worker.runtime", "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=own_session,
                cwd=HANDLERS,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY / "src"), **env},
            )

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        data, fds = encode(Frame(kind, fields, body))
        if fds:
            sent = socket.send_fds(self.sock, [data], fds)
            data = data[sent:]
            for fd in fds:
                os.close(fd)
        self.sock.sendall(data)

    def setup(self, *, concurrency: int = 1, device: dict[str, Any] | None = DEVICE) -> Frame:
        self.send("setup", handler=self.handler, device=device, concurrency=concurrency)
        return self.next()

    def run(self, body: bytes = b"{}", *, job: str = "j", attempt: int = 1, **more: Any) -> None:
        self.send("run", body, job=job, attempt=attempt, scratch=str(self.scratch), **more)

    def cancel(self, *, job: str = "j", attempt: int = 1, reason: str = "asked") -> None:
        self.send("cancel", job=job, attempt=attempt, reason=reason)

    def next(self) -> Frame:
        """The next frame; fails the test when the worker hangs up first."""
        while not self._frames:
            data, ancillary, _, _ = self.sock.recvmsg(1 << 16, socket.CMSG_SPACE(64), socket.MSG_CMSG_CLOEXEC)
            assert data, f"the worker hung up; its log: {self.log.read_text()}"
            fds = array.array("i")
            for _, _, packed in ancillary:
                fds.frombytes(packed)
            self._frames.extend(map(with_body, self._reader.feed(data, list(fds))))
        return self._frames.popleft()

    def is_silent(self) -> bool:
        """Whether it says nothing and sleeps: a worker that goes on would say something first."""
        while not self._frames and not select.select([self.sock], [], [], 0)[0]:
            tasks = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread has just ended
                if {task.read_text().rpartition(")")[2].split()[0] for task in tasks} == {"S"}:
                    return not select.select([self.sock], [], [], 0)[0]
        return False

    def until_end(self) -> list[Frame]:
        """All frames up to and with a done or failed."""
        frames = [self.next()]
        while frames[-1].kind not in ("done", "failed"):
            frames.append(self.next())
        return frames

    def hang_up(self) -> None:
        self.sock.close()

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self._reader.close()
        for frame in self._frames:
            if frame.fd is not None:
                os.close(frame.fd)
        self.sock.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)


StartWorker = Callable[..., Agent]


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """Start a worker for `folder/name.py:attribute` of tests/handlers; it is killed and reaped afterwards."""
    with workers(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def start_shared_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartWorker]:
    """One that all tests of a module use, as its libraries take long to load."""
    with workers(tmp_path_factory.mktemp("shared")) as start:
        yield start


@contextlib.contextmanager
def workers(folder: Path) -> Iterator[StartWorker]:
    agents: list[Agent] = []

    def start(handler: str, *, own_session: bool = True, env: dict[str, str] | None = None) -> Agent:
        spec = handler if handler.startswith("/") or ".py" not in handler else f"{HANDLERS}/{handler}"
        scratch = folder / f"scratch-{len(agents)}"
        scratch.mkdir()
        log = folder / f"log-{len(agents)}"
        agents.append(Agent(spec, scratch, log=log, own_session=own_session, env=env or {}))
        return agents[-1]

    try:
        yield start
    finally:
        for agent in agents:
            agent.close()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """No descriptor, thread or child more than before: servers that other folders keep are not ours."""
    before, threads, children = len(os.listdir("/proc/self/fd")), set(threading.enumerate()), _children()
    yield
    assert len(os.listdir("/proc/self/fd")) <= before, "a descriptor was left open"
    assert set(threading.enumerate()) <= threads
    assert _children() <= children


def _children() -> set[tuple[int, str]]:
    """Zombies too."""
    found = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # gone meanwhile
            found.add((child.pid, child.name()))
    return found
