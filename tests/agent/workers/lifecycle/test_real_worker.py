"""The same agent with real processes: its shell and the local spawner mean the same by the interface."""

from __future__ import annotations

import json
import os

import pytest
from msgspec.structs import replace

from stoker.agent.workers.lifecycle.process_machine import StopLadder
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from tests.agent.real_processes import at_work

HANDLER = """
import os, signal, time
from pathlib import Path
from stoker.worker import File

def handler(job):
    match job.input.get("do"):
        case "go away":
            (job.scratch / "left").touch()
            os.chdir(job.scratch)
        case "die":
            (job.scratch / "left").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        case "stuck":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            while True:
                time.sleep(60)
        case "file":
            path = job.scratch / "a.txt"
            path.write_text("made")
            job.measure("word", 3)
            return {"url": File(path)}
        case "outside":
            return {"url": File(Path(__file__))}
    return {"pid": os.getpid(), "echo": job.input}
"""


@pytest.fixture
async def real(a_host, tmp_path):
    """A host whose workers are processes."""
    folder = tmp_path / "handlers"
    folder.mkdir()
    (folder / "h.py").write_text(HANDLER)
    host = a_host()
    host.spawner = LocalSpawner(tmp_path / "agent")
    host.scratch = ScratchFolders(tmp_path / "scratch")
    host.handler = f"{folder}/h.py:handler"
    host.set(cancel_s=0.1, stop_ladder=StopLadder(term_s=0.1))
    async with at_work(host, tmp_path / "scratch"):
        yield host


async def test_jobs_through_a_real_process(real, a_worker, a_job):
    await real.control.ready(a_worker(handler=real.handler))
    await real.control.assign(a_job("j1", b'{"a": "\\u00e9"}'))
    outcome = await real.control.outcome("j1")
    first = json.loads(outcome.output)
    assert (outcome.end, first["echo"]) == ("completed", {"a": "é"})

    await real.control.assign(a_job("j2", b'{"do": "die"}'))
    assert (await real.control.outcome("j2")).end == "lost"
    await real.control.worker_is("w1", "ready")

    timeout = replace(a_job("j3", b'{"do": "stuck"}'), execution_timeout_ms=2_000)  # from when it is told
    await real.control.assign(timeout)
    assert (await real.control.outcome("j3")).end == "timed_out"
    await real.control.until(lambda: [n.state for n in real.control.news("w1")].count("ready") == 3)
    await real.control.assign(a_job("j4"))
    assert json.loads((await real.control.outcome("j4")).output)["pid"] != first["pid"]


async def test_files_through_a_real_process(real, a_worker, a_job):
    await real.control.ready(a_worker(handler=real.handler))
    await real.control.assign(a_job("j1", b'{"do": "file"}'))
    outcome = await real.control.outcome("j1")
    assert "e1/j1/1/0-a.txt" in json.loads(outcome.output)["url"]
    assert real.objects.blobs["bucket", "e1/j1/1/0-a.txt"] == b"made"

    await real.control.assign(a_job("j2", b'{"do": "outside"}'))
    outcome = await real.control.outcome("j2")
    assert outcome.end == "failed"
    assert "scratch" in outcome.error


@pytest.mark.parametrize(
    ("does", "end"),
    [("nothing", "completed"), ("go away", "completed"), ("die", "lost"), ("file", "completed")],
)
async def test_no_scratch_folder_is_there_after_an_attempt(real, a_worker, a_job, tmp_path, does, end):
    await real.control.ready(a_worker(handler=real.handler))
    await real.control.assign(a_job("j1", json.dumps({"do": does}).encode()))
    assert (await real.control.outcome("j1")).end == end
    assert os.listdir(tmp_path / "scratch") == []


async def test_a_handler_that_does_not_exist(real, a_worker):
    await real.control.until(lambda: real.control.stream)
    await real.control.desire(a_worker(handler=real.handler.replace(":handler", ":handle")))
    await real.control.until(lambda: real.control.news("w1"))
    assert "handle" in real.control.news("w1")[0].reason
