"""Ten thousand jobs through one worker: memory, descriptors and threads of all processes stay.

Compared is what they hold after the first thousand with what they hold at the end, in the same load. A stock
protocol worker sleeps whenever its slots are taken; it gets as many jobs as fit into half a minute.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.system.stack import PROGRAMS, Stack, queue_endpoint, running
from tests.system.workers.test_protocol_workers import STOCK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CLIENTS = 8
MIB = 1 << 20
UNLIMITED = "[rate_limits]\nrequests_per_worker = 1000000\n"
LANGUAGE_MODEL = {
    "imageName": f"local:{PROGRAMS / 'language_model'}",
    "dockerStartCmd": [str(STOCK), "src/handler.py"],
    "concurrency": 8,
}


@dataclass(frozen=True)
class Held:
    """By one process."""

    memory: int
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return f"{self.memory / MIB:7.1f} MiB {self.descriptors:4} descriptors {self.threads:3} threads"


@dataclass(frozen=True)
class Case:
    """The first look is after `first` of its jobs."""

    endpoint: str
    section: str
    job_input: dict[str, Any]
    first: int
    jobs: int


CASES = [
    Case("sync", queue_endpoint("sync", "outputs/echo.py"), {"n": 1}, 1000, 10_000),
    Case("async", queue_endpoint("async", "outputs/async_echo.py", concurrency=4), {"n": 1}, 1000, 10_000),
    Case("llm", queue_endpoint("llm", "", **LANGUAGE_MODEL), {"prompt": "a b"}, 100, 300),
]
CONNECTIONS = 2
"""A call that happens to be under way."""

THREADS = {"worker": 0, "agent": 2, "control": 2}
"""gRPC adds one to its pool when it was not run for a while, and lets it go when there is nothing to do."""

MAY_GROW = {"worker": MIB, "agent": 4 * MIB, "control": 12 * MIB}
"""Control's database cache fills; the agent remembers the last 4096 attempts."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.endpoint)
def test_nothing_grows(tmp_path: Path, case: Case) -> None:
    if case.endpoint == "llm" and not STOCK.exists():
        pytest.skip(f"there is no {STOCK}; .ci/peers makes it")
    with running(tmp_path, UNLIMITED, case.section, executed=True) as stack, Clients(stack) as callers:
        callers.run(case, case.first)
        before = look(stack)
        callers.run(case, case.jobs - case.first)
        after = look(stack)
        health = stack.http.get(f"/{case.endpoint}/health").json()
    for name in before:
        print(f"{case.endpoint:<6} {name:<8} after {case.first:>5}: {before[name]}")
        print(f"{'':<6} {'':<8} after {case.jobs:>5}: {after[name]}")
    assert health["jobs"]["completed"] == case.jobs
    for name, was in before.items():
        assert after[name].descriptors <= was.descriptors + CONNECTIONS, name
        assert after[name].threads <= was.threads + THREADS[name], name
        assert after[name].memory <= was.memory + MAY_GROW[name], name


class Clients:
    """`CLIENTS` callers, each with a connection of its own that stays open."""

    def __init__(self, stack: Stack) -> None:
        self._threads = ThreadPoolExecutor(CLIENTS)
        self._http = [
            httpx2.Client(
                base_url=stack.http.base_url, headers=stack.http.headers, timeout=120, trust_env=False
            )
            for _ in range(CLIENTS)
        ]

    def run(self, case: Case, jobs: int) -> None:
        numbers = itertools.count()

        def calls(http: httpx2.Client) -> None:
            while next(numbers) < jobs:
                answer = http.post(f"/{case.endpoint}/runsync?wait=120000", json={"input": case.job_input})
                assert answer.json()["status"] == "COMPLETED", answer.text

        list(self._threads.map(calls, self._http))

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        for http in self._http:
            http.close()


def look(stack: Stack) -> dict[str, Held]:
    agent = psutil.Process(stack.agent.pid)
    processes = {"worker": worker_of(agent), "agent": agent, "control": psutil.Process(stack.control.pid)}
    return {
        name: Held(one.memory_info().rss, one.num_fds(), one.num_threads()) for name, one in processes.items()
    }


def worker_of(agent: psutil.Process) -> psutil.Process:
    """The one that runs the handler: the largest of what the agent started."""
    return max(below(agent), key=lambda one: one.memory_info().rss)


def below(agent: psutil.Process) -> Iterator[psutil.Process]:
    for process in agent.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # others come and go
            if any("runtime" in word or word.endswith("handler.py") for word in process.cmdline()):
                yield process
