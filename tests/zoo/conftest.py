# it looks for an interpreter, once
"""One agent with real worker processes for a whole module, and a good handler beside every sinner."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from msgspec.structs import replace

from stoker.agent.host.process_tree.tree import AGENT_MARK, marked, process_table
from stoker.agent.host.sandbox.isolation import Host
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.lifecycle.process_machine import StopLadder
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.wire.messages import Outcome, WorkerSpec, WorkerState
from tests.load_module import load_module
from tests.other_users import SYSTEM_PYTHON, WHY_NOT

USERS = (54_000, 54_019)
PATIENCE_S = 240.0
"""For a job's end: the largest outputs are written to a disk that others use, too."""
HANDLERS = Path(__file__).parents[1] / "handlers"


scripted = load_module("zoo_agent_tests", HANDLERS.with_name("agent") / "conftest.py")


class Zoo:
    """The node. `good` serves all along; each sinner is a worker of its own."""

    def __init__(self, folder: Path, spawner: LocalSpawner) -> None:
        self.folder = folder
        self.host = scripted.Host()
        self.host.spawner = spawner
        self.host.scratch = ScratchFolders(folder / "scratch", spawner.users)
        self.host.set(cancel_s=0.15, stop_ladder=StopLadder(0.15, 0.15), grace_s=0.1)
        self.control = self.host.control
        self.good = scripted.worker("good", handler=f"{HANDLERS}/outputs/echo.py:handler")
        self._numbers = itertools.count(1)
        self._before: tuple[dict[int, psutil.Process], int]

    async def open(self) -> None:
        await self.control.ready(self.good)
        await self.next_job()
        self._before = self._seen()

    # -- workers

    async def cage(self, case: Any, start_timeout_s: float = 30.0) -> WorkerSpec:
        """The handler as a worker of this node."""
        spec = scripted.worker(
            f"sinner-{next(self._numbers)}",
            handler=f"{HANDLERS / case.file}:{case.attribute}",
            start_timeout_s=start_timeout_s,
            limits=case.limits,
        )
        await self.control.desire(self.good, spec)
        return spec

    async def reported(self, spec: WorkerSpec, *, times: int = 1) -> WorkerState:
        """The state that control was told, that many states after the start."""
        await self.control.until(lambda: len(self.control.news(spec.worker)) >= times, 30)
        return self.control.news(spec.worker)[times - 1]

    async def lives_again(self, spec: WorkerSpec) -> None:
        """After its end, which may come a moment behind that of its job."""
        await self.control.until(lambda: self._states(spec).count("ready") == 2, 30)

    def lived_on(self, spec: WorkerSpec) -> bool:
        return self._states(spec) == ["ready"]

    def _states(self, spec: WorkerSpec) -> list[str]:
        return [news.state for news in self.control.news(spec.worker)]

    async def free(self, spec: WorkerSpec) -> None:
        """Nobody wants it any more."""
        await self.control.desire(self.good)
        await self.control.until(lambda: self.control.news(spec.worker)[-1].state == "gone", 30)

    def source(self, file: str) -> str:
        return (HANDLERS / file).read_text()

    # -- jobs

    async def begin(self, spec: WorkerSpec, job_input: Any, timeout_s: float = PATIENCE_S) -> str:
        job = f"job-{next(self._numbers)}"
        assign = scripted.job(job, json.dumps(job_input).encode(), on=spec.worker)
        await self.control.assign(replace(assign, execution_timeout_ms=round(timeout_s * 1000)))
        return job

    async def end_of(self, job: str) -> Outcome:
        await self.control.until(lambda: self.control.about(Outcome, job), PATIENCE_S)
        return self.control.about(Outcome, job)[0]

    async def output(self, spec: WorkerSpec, job_input: Any) -> Any:
        outcome = await self.end_of(await self.begin(spec, job_input))
        assert outcome.end == "completed", outcome
        return json.loads(outcome.output) if outcome.output else None

    async def next_job(self) -> None:
        assert await self.output(self.good, "next") == "next"

    # -- what may be left

    def nothing_is_left(self) -> None:
        processes, fds = self._seen()
        left = {pid: one.cmdline() for pid, one in processes.items() if pid not in self._before[0]}
        assert not left, "processes were left"
        assert fds <= self._before[1], "descriptors were left in the agent"
        assert os.listdir(self.folder / "scratch") == []
        assert len(os.listdir(self.folder / "agent" / "homes")) == 1, "only the good one has a home"

    def _seen(self) -> tuple[dict[int, psutil.Process], int]:
        """The living processes that are this agent's, however they left it; and how many descriptors are
        open. Orphans that ended by themselves are reaped from time to time."""
        mark = str(self.folder / "agent")
        found = {}
        for pid, seen in process_table().items():
            if not seen.zombie and (seen.parent == os.getpid() or marked(pid, AGENT_MARK, mark)):
                with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
                    found[pid] = psutil.Process(pid)
        return found, len(os.listdir("/proc/self/fd"))


@contextlib.asynccontextmanager
async def opened(zoo: Zoo) -> AsyncIterator[Zoo]:
    running = asyncio.create_task(zoo.host.agent.run())
    await zoo.open()
    yield zoo
    zoo.host.agent.stop()
    async with asyncio.timeout(30):
        await running
    assert os.listdir(zoo.folder / "scratch") == []
    for task in zoo.control._tasks:
        task.cancel()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def zoo(tmp_path_factory: Any) -> AsyncIterator[Zoo]:
    folder = tmp_path_factory.mktemp("zoo")
    async with opened(Zoo(folder, LocalSpawner(folder / "agent"))) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def zoo_of_others() -> AsyncIterator[Zoo]:
    """Each worker has another user."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    # Not below pytest's folder: other users cannot pass through that one.
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        os.mkdir(f"{name}/agent", 0o711)
        host, users = Host(user_range=USERS), WorkerUsers(between=USERS)
        spawner = LocalSpawner(Path(name) / "agent", python=SYSTEM_PYTHON, users=users, host=host)
        async with opened(Zoo(Path(name), spawner)) as made:
            yield made
