"""The pipe of permissions, as a malicious worker process may use it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Thread

import pytest

from stoker.agent.workers.lifecycle.runs_ahead import RunsAhead
from stoker.wire.messages import AttemptKey

FIRST, SECOND = AttemptKey("j1", 1), AttemptKey("j2", 1)


@pytest.fixture
def ahead() -> Iterator[RunsAhead]:
    before = set(os.listdir("/proc/self/fd"))
    made = RunsAhead(enabled=True)
    yield made
    made.close()
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def workers(ahead: RunsAhead) -> Iterator[int]:
    """The worker's end, which is the same open file as the one that it is sent."""
    assert ahead.fd is not None
    fd = os.dup(ahead.fd)
    yield fd
    os.close(fd)


def test_a_worker_that_sets_its_end_blocking_does_not_block_the_agent(ahead: RunsAhead, workers: int) -> None:
    os.set_blocking(workers, True)
    ahead.send(FIRST)
    assert os.read(workers, 1)
    withdrawn: list[list[AttemptKey]] = []
    agent = Thread(target=lambda: withdrawn.append(ahead.withdraw()))
    agent.start()
    agent.join(5.0)
    blocked = agent.is_alive()
    if blocked:
        ahead.send(SECOND)  # wakes it
        agent.join()
    assert not blocked
    assert withdrawn == [[]]


def test_a_run_that_could_not_be_sent_leaves_no_permission(ahead: RunsAhead, workers: int) -> None:
    ahead.send(FIRST)
    ahead.send(SECOND)
    ahead.unsend(SECOND)
    assert ahead.sent == [FIRST]
    assert os.read(workers, 2) == b"r", "one for the first"
    with pytest.raises(BlockingIOError):
        os.read(workers, 1)


def test_what_the_worker_has_not_begun_is_withdrawn(ahead: RunsAhead, workers: int) -> None:
    ahead.send(FIRST)
    ahead.send(SECOND)
    assert os.read(workers, 1)
    assert ahead.withdraw() == [SECOND]
    assert ahead.withdraw() == []
