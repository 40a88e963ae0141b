"""Real worker processes with runs that lie in their socket before their turn."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.worker.frames import Frame, encode


class Ahead:
    """A worker that has received the pipe of permissions."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.permissions, self._give = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        setup = {"handler": agent.handler, "device": None, "concurrency": 1}
        data, fds = encode(Frame("setup", setup, fd=self.permissions))
        socket.send_fds(agent.sock, [data], fds)
        self.ready = agent.next()

    def run(self, job: str, body: bytes = b"{}") -> None:
        """Sends it ahead."""
        os.write(self._give, b"r")
        self.agent.run(body, job=job, ahead=True)

    def take_back(self) -> int:
        try:
            return len(os.read(self.permissions, 100))
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.permissions)
        os.close(self._give)


@pytest.fixture
def ahead(start_worker: Any) -> Iterator[Any]:
    made: list[Ahead] = []

    def make(handler: str) -> Ahead:
        made.append(Ahead(start_worker(handler)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_runs_begin_in_order_each_with_its_permission(ahead: Any) -> None:
    worker = ahead("outputs/echo.py:handler")
    assert worker.ready.fields["ahead"] >= 2
    worker.agent.run(b'{"n": 0}', job="j0")
    for n in range(1, 4):
        worker.run(f"j{n}", b'{"n": %d}' % n)
    ends = [worker.agent.until_end()[-1] for _ in range(4)]
    assert [(end.kind, end.job) for end in ends] == [("done", f"j{n}") for n in range(4)]
    assert worker.take_back() == 0, "they are used up"


def test_what_was_withdrawn_never_begins_although_its_worker_had_read_it(ahead: Any) -> None:
    """The handler reads the socket while it waits for its cancel."""
    worker = ahead("cancelling/slow_until_cancelled.py:handler")
    agent = worker.agent
    agent.run(job="j0")
    assert agent.next().kind == "progress"
    worker.run("j1")
    worker.run("j2")
    assert worker.take_back() == 2
    agent.cancel(job="j0")
    assert (failed := agent.next()).kind == "failed"
    assert failed.job == "j0"
    agent.run(job="j3")
    assert (agent.next().job, worker.take_back()) == ("j3", 0)
    worker.run("j4")
    agent.cancel(job="j3")
    assert [agent.next().job, agent.next().job] == ["j3", "j4"], "one with a permission does"


def test_an_idle_worker_drops_what_was_withdrawn(ahead: Any) -> None:
    worker = ahead("outputs/echo.py:handler")
    worker.agent.run(b"1", job="j1", ahead=True)
    worker.agent.run(b"2", job="j2")
    assert worker.agent.until_end()[-1].job == "j2"


def test_a_worker_that_asks_to_be_replaced_begins_nothing_more(ahead: Any) -> None:
    worker = ahead("outputs/echo.py:handler")
    agent = worker.agent
    agent.run(b'{"refresh_worker": true}', job="j0")
    worker.run("j1")
    frames = agent.until_end()
    assert [frame.kind for frame in frames] == ["retire", "done"]
    agent.send("stop")
    assert agent.wait() == 0
    assert worker.take_back() == 1


def test_without_permissions_nothing_is_taken_ahead(start_worker: Any) -> None:
    assert "ahead" not in start_worker("outputs/echo.py:handler").setup().fields
    assert "ahead" not in start_worker("outputs/echo.py:handler").setup(concurrency=2).fields
    assert "ahead" not in start_worker("outputs/async_echo.py:handler").setup().fields
