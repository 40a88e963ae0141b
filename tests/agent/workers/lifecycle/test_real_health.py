"""Worker health with real processes: neighbours of a kill, lost contexts, replacements, starts that fail."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker.agent.host.process_tree.memory import WorkerMemory, tree_memory, tree_of
from stoker.agent.workers.lifecycle import restarts
from stoker.agent.workers.lifecycle.process_machine import StopLadder
from stoker.agent.workers.processes.by_kind import SpawnerByKind
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.agent.workers.sdk_programs.server import ProtocolServer
from stoker.agent.workers.sdk_programs.worker import ProtocolSpawner
from stoker.agent.workers.zygotes.zygotes import ZygoteSpawner
from stoker.testing.fake_host import CPU
from stoker.wire.messages import Outcome, Progress, Refused
from tests.agent.real_processes import at_work

PROGRAMS = Path(__file__).parents[3] / "handlers_protocol"
STOCK = Path(__file__).parents[4] / ".peers" / "python" / "bin" / "python"

HANDLER = """
import asyncio, os, signal, sys

kept = []

async def together(job):
    job.progress("running")
    while True:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if not job.input.get("stubborn"):
                raise

async def troubled(job):
    if "raise" not in job.input:
        return await together(job)
    raise RuntimeError(job.input["raise"])

def grows(job):
    kept.append(b"x" * (job.input["mib"] << 20))
    return os.getpid()

def forked(job):
    return [os.getpid(), "xml.dom.minidom" in sys.modules]

def dies(job):
    if not os.path.exists("repaired"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "well"
"""

STARTS = {
    "never_ready": "import os, signal\nwhile not os.path.exists('repaired'): signal.sigtimedwait([], 0.01)",
    "dies_at_import": "import os\nif not os.path.exists('repaired'): os._exit(3)",
    "raises_at_import": "import os\nif not os.path.exists('repaired'): raise OSError('no weights')",
    "unfit": (
        "import os\nfrom stoker.worker import fitness_check\n@fitness_check\ndef weights():\n"
        "    if not os.path.exists('repaired'): raise OSError('no weights')"
    ),
    "setup": None,
}
SETUP = """
import os
class Handler:
    def setup(self, device):
        if not os.path.exists('repaired'):
            raise OSError('no weights')
    def run(self, job):
        return "well"
handler = Handler
"""
WHY = {
    "never_ready": "crash loop: the worker was not ready within 0.8 s",
    "dies_at_import": "crash loop: the worker ended before it was ready: exited with code 3",
    "raises_at_import": "crash loop: raises_at_import.py cannot be imported: OSError: no weights",
    "unfit": "crash loop: fitness check weights: OSError: no weights",
    "setup": "crash loop: OSError: no weights",
}


@pytest.fixture
async def real(a_host, tmp_path, monkeypatch):
    """A host whose workers are processes; what it waits between starts is short."""
    monkeypatch.setattr(restarts, "FIRST_S", 0.02)
    folder = tmp_path / "handlers"
    folder.mkdir()
    (folder / "h.py").write_text(HANDLER)
    host = a_host()
    local = LocalSpawner(tmp_path / "agent")
    protocol = partial(ProtocolSpawner, local, ProtocolServer(refuse_s=0.05))
    host.spawner = SpawnerByKind(ZygoteSpawner(local), protocol=protocol)
    host.scratch = ScratchFolders(tmp_path / "scratch")
    host.folder = folder
    host.measure = WorkerMemory(host.sampler).measure
    host.set(cancel_s=60.0, stop_ladder=StopLadder(term_s=0.1))
    async with at_work(host, tmp_path / "scratch"):
        yield host


def ends(host, job):
    return [type(body).__name__ for body in host.control.bodies(Outcome | Refused) if body.job == job]


async def running(host, *jobs):
    """Until each of them says so itself."""
    for job in jobs:
        await host.control.until(lambda job=job: host.control.about(Progress, job))


# ---- neighbours


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_neighbours_of_a_job_that_ignores_its_cancel_are_handed_back(real, a_worker, a_job, how):
    await real.control.ready(a_worker(handler=f"{real.folder}/h.py:together", concurrency=4))
    await real.control.assign(a_job("n1"), a_job("n2"), a_job("polite"))
    await running(real, "n1", "n2", "polite")
    await real.control.cancel("polite")
    assert (await real.control.outcome("polite")).end == "cancelled", "a neighbour's cancel needs no kill"
    real.agent.attempts._cancel_s = 0.1
    fields = {"execution_timeout_ms": 2_000} if how == "timeout" else {}
    await real.control.assign(a_job("stubborn", b'{"stubborn": true}', **fields))
    if how == "cancel":
        await running(real, "stubborn")
        await real.control.cancel("stubborn")
    outcome = await real.control.outcome("stubborn")
    assert outcome.end == {"cancel": "cancelled", "timeout": "timed_out"}[how]
    for neighbour in ("n1", "n2"):
        assert "a job did not stop" in (await real.control.refused(neighbour)).reason
        assert ends(real, neighbour) == ["Refused"], "given back, once, and not counted"
    await real.control.worker_is("w1", "ready")
    await real.control.assign(a_job("n1", attempt=2))
    await real.control.until(real.agent.attempts.held)
    await real.control.cancel("n1", 2)
    await real.control.outcome("n1", 2)


async def test_neighbours_of_a_lost_context_are_handed_back(real, a_worker, a_job):
    await real.control.ready(a_worker(handler=f"{real.folder}/h.py:troubled", concurrency=3))
    await real.control.assign(a_job("n1"), a_job("n2", b'{"stubborn": true}'))
    await running(real, "n1", "n2")
    error = "CUDA error: device-side assert triggered"
    await real.control.assign(a_job("broken", json.dumps({"raise": error}).encode()))
    outcome = await real.control.outcome("broken")
    assert (outcome.end, outcome.retryable) == ("failed", True)
    assert outcome.error.startswith(f"RuntimeError: {error}")
    for neighbour in ("n1", "n2"):
        assert (await real.control.refused(neighbour)).reason == f"its CUDA context is lost: {error}"
        assert ends(real, neighbour) == ["Refused"]
    await real.control.worker_is("w1", "ready")


async def test_out_of_memory_fails_its_job_and_lets_the_neighbours_end(real, a_worker, a_job):
    await real.control.ready(a_worker(handler=f"{real.folder}/h.py:troubled", concurrency=2))
    await real.control.assign(a_job("n1"))
    await running(real, "n1")
    error = "CUDA out of memory. Tried to allocate 20.00 GiB"
    await real.control.assign(a_job("large", json.dumps({"raise": error}).encode()))
    outcome = await real.control.outcome("large")
    assert (outcome.end, outcome.retryable) == ("failed", False)
    assert outcome.error.startswith(f"the job ran out of GPU memory: RuntimeError: {error}")
    assert real.control.news("w1")[-1].state == "stopping"
    await real.control.cancel("n1")
    assert (await real.control.outcome("n1")).end == "cancelled"
    await real.control.worker_is("w1", "ready")


# ---- replacements


async def test_a_process_that_grows_is_replaced(real, a_worker, a_job):
    looked, measure = asyncio.Event(), real.measure

    async def counted(*about):
        found = await measure(*about)
        looked.set()
        return found

    real.measure = counted
    await real.control.ready(a_worker(handler=f"{real.folder}/h.py:grows", max_growth_bytes=100 << 20))
    await looked.wait()
    pids = []
    for n in range(3):
        await real.control.assign(a_job(f"j{n}", b'{"mib": 60}'))
        pids.append(int((await real.control.outcome(f"j{n}")).output))
        if n == 1:
            news = await real.control.worker_is("w1", "stopping")
            assert "its memory has grown by 1" in news.reason
            await real.control.worker_is("w1", "ready")
    assert pids[0] == pids[1] != pids[2]
    assert real.control.bodies(Refused) == []


async def test_one_job_each(real, a_worker, a_job):
    await real.control.ready(a_worker(handler=f"{real.folder}/h.py:grows", max_jobs=1))
    pids = set()
    for n in range(3):
        await real.control.worker_is("w1", "ready")
        await real.control.assign(a_job(f"j{n}", b'{"mib": 0}'))
        pids.add(int((await real.control.outcome(f"j{n}")).output))
    assert len(pids) == 3
    assert real.control.bodies(Refused) == []


async def test_a_replacement_is_forked_where_its_endpoint_preloads(real, a_worker, a_job):
    handler = f"{real.folder}/h.py:forked"
    await real.control.ready(a_worker(handler=handler, max_jobs=1, preload=("xml.dom.minidom",)))
    pids = set()
    for n in range(4):
        await real.control.worker_is("w1", "ready")
        await real.control.assign(a_job(f"j{n}"))
        pid, preloaded = json.loads((await real.control.outcome(f"j{n}")).output)
        assert preloaded
        pids.add(pid)
    assert len(pids) == 4
    assert real.control.bodies(Refused) == []


async def test_memory_of_a_tree_of_processes(real):
    """What is held by the first counts once; that of its child counts, too."""
    holds = "import sys; x = b'x' * (64 << 20); print(flush=True); sys.stdin.read()"
    starts = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {holds!r}])"
    script = f"{starts}; {holds}; child.wait()"
    first = await asyncio.create_subprocess_exec(
        "python3", "-c", script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    for _ in range(2):
        await first.stdout.readline()
    tree = tree_of(first.pid)
    assert (tree[0], len(tree)) == (first.pid, 2)
    assert 60 << 20 < tree_memory(tree[1:]) < 120 << 20
    assert 120 << 20 < tree_memory(tree) < 240 << 20
    first.stdin.close()
    await first.wait()
    assert tree_memory(tree_of(first.pid)) is None
    gone = await real.measure(first.pid, [CPU], False)
    assert (gone.host, gone.device) == (None, None), "unknown, and not 0"


# ---- starts


@pytest.mark.parametrize("how", WHY)
@pytest.mark.slow
async def test_one_that_does_not_come_up_is_unhealthy_until_the_cause_is_repaired(real, a_worker, a_job, how):
    handler = real.folder / f"{how}.py"
    lines = STARTS[how]
    handler.write_text(SETUP if lines is None else f"{lines}\ndef handler(job):\n    return 'well'\n")
    await real.control.until(lambda: real.control.stream)
    started = 0.8 if how == "never_ready" else 60.0
    await real.control.desire(a_worker(handler=f"{handler}:handler", start_timeout_s=started))
    news = await real.control.worker_is("w1", "unhealthy")
    assert news.reason == WHY[how]
    assert real.control.bodies(Outcome) == []
    worker = real.agent.workers.by_name["w1"]
    worker.spec = replace(worker.spec, start_timeout_s=60.0)  # for the start that succeeds
    (real.folder / "repaired").touch()
    await real.control.worker_is("w1", "ready")
    await real.control.assign(a_job("j1"))
    assert (await real.control.outcome("j1")).output == b'"well"'


async def test_a_stock_worker_that_reports_it_is_unfit_counts_as_a_start_that_failed(real, a_worker):
    if not STOCK.exists():
        pytest.skip(f"there is no {STOCK}; .ci/peers makes it")
    await real.control.until(lambda: real.control.stream)
    program = {"kind": "protocol", "command": (str(STOCK), "unfit.py")}
    await real.control.desire(a_worker(handler=str(PROGRAMS), **program))
    await real.control.until(lambda: real.control.news("w1"))
    first = real.control.news("w1")[0]
    assert (first.state, first.reason) == (
        "starting",
        "fitness check no_driver failed: RuntimeError: no driver on this host",
    )


async def test_one_that_dies_of_its_first_job_is_unhealthy_until_the_cause_is_repaired(real, a_worker, a_job):
    await real.control.ready(a_worker(handler=f"{real.folder}/h.py:dies"))
    for n in range(3):
        await real.control.worker_is("w1", "ready")
        await real.control.assign(a_job(f"j{n}"))
        assert (await real.control.outcome(f"j{n}")).end == "lost"
    await real.control.until(lambda: "unhealthy" in [news.state for news in real.control.news("w1")])
    (real.folder / "repaired").touch()
    await real.control.worker_is("w1", "ready")
    await real.control.assign(a_job("good"))
    assert (await real.control.outcome("good")).output == b'"well"'
