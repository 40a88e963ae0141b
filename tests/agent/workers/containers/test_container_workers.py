"""Handlers in real containers: jobs, environment, files, logs, every way to stop, and nothing left."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.interfaces import WorkerExit
from stoker.agent.workers.containers.process import LOST
from stoker.wire.messages import AttemptKey
from stoker.worker.frames import Frame
from tests.agent.workers.containers.container_host import surely_out_of_memory
from tests.container_engine_here import patient

pytestmark = pytest.mark.slow

KEY = AttemptKey("j", 1)


async def run(worker: Any, value: Any = None, scratch: str = "/tmp", job: str = "j") -> None:
    await worker.received("ready")
    fields = {"job": job, "attempt": 1, "scratch": scratch}
    worker.process.send(Frame("run", fields, json.dumps(value or {}).encode()))


async def output(worker: Any, value: Any = None, **more: Any) -> Any:
    await run(worker, value, **more)
    return json.loads((await worker.received("done")).body)


# ---- python workers


async def test_jobs_one_after_the_other_and_a_clean_end(host: Any) -> None:
    worker = host.python("outputs/echo")
    for n in range(3):
        assert await output(worker, {"n": n}, job=f"j{n}") == {"n": n}
        worker.frames.pop()
    worker.process.send(Frame("stop"))
    assert (await worker.exited()).reason == "exited with code 0"


async def test_what_a_handler_finds(host: Any) -> None:
    worker = host.python("tells_where_it_is", "/here", env={"TOKEN": "declared", "PYTHONPATH": "/mine"})
    found = await output(worker)
    environment = found["environment"]
    assert (environment["TOKEN"], environment["PYTHONPATH"]) == ("declared", "/stoker/package:/mine")
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert [name for name in environment if name.startswith("STOKER")] == ["STOKER_IMAGE_ID"]
    assert found["package"] == ["__init__.py", "app_values.py", "worker"], "of this platform no more"
    assert (found["writable"], found["uid"]) == (False, 0)


async def test_a_file_comes_as_a_descriptor_and_lies_where_the_agent_knows_it(host: Any) -> None:
    worker = host.python("files/file_ok")
    scratch = host.scratch.prepare(KEY, "w1")
    await run(worker, {"text": "hello"}, scratch)
    file = await worker.received("file")
    try:
        assert host.scratch.check(KEY, file.fd) == 5
        assert os.pread(file.fd, 10, 0) == b"hello"
    finally:
        os.close(file.fd)
    await worker.received("done")


async def test_what_it_prints_is_received_and_kept(host: Any) -> None:
    worker = host.python("printing/prints")
    await worker.received("ready")
    await output(worker)
    worker.process.send(Frame("stop"))
    assert set((await worker.exited()).log_tail) == {"to stdout", "to stderr"}
    assert set(host.lines) == {"to stdout", "to stderr"}


async def test_all_that_a_job_printed_is_there_at_its_end(host: Any) -> None:
    worker = host.python("printing/prints")
    await worker.received("ready")
    for n in range(10):
        printed = worker.process.tail.listen()
        await output(worker, job=f"j{n}")
        assert {line.text for line in printed.after(0)[1]} == {"to stdout", "to stderr"}
        worker.frames.pop()
    worker.process.send(Frame("stop"))
    assert (await worker.exited()).reason == "exited with code 0"


async def test_a_cancelled_job_gives_its_worker_back(host: Any) -> None:
    worker = host.python("cancelling/slow_until_cancelled")
    await run(worker)
    await worker.received("progress")
    worker.process.send(Frame("cancel", {"job": "j", "attempt": 1, "reason": "asked"}))
    assert (await worker.received("failed")).job == "j"
    assert worker.exit is None


async def test_native_code_that_ignores_frames_ends_by_sigterm(host: Any) -> None:
    worker = host.python("cancelling/stuck_in_c")
    await run(worker)
    await worker.received("progress")
    worker.process.terminate()
    assert (await worker.exited()).reason == "stopped by the agent (SIGTERM)"


async def test_a_kill_ends_all_of_it(host: Any) -> None:
    worker = host.python("cancelling/stuck_in_c")
    await run(worker)
    await worker.received("progress")
    worker.process.kill()
    ended = await worker.exited()
    assert (ended.status, ended.reason) == (-9, "killed by the agent")


async def test_out_of_memory_is_named(host: Any) -> None:
    async def end() -> WorkerExit:
        worker = host.python("eats_memory", "/here")
        await run(worker)
        return await worker.exited()

    assert (await surely_out_of_memory(end)).reason == "killed: out of memory (limit 256 MiB)"


async def test_one_that_is_stopped_before_it_runs(host: Any) -> None:
    worker = host.python("outputs/echo")
    worker.process.kill()
    assert (await worker.exited()).reason == "killed by the agent"


async def test_what_cannot_be_started_is_reported_with_a_message(host: Any) -> None:
    nothing = host.start(handler="/app/outputs/echo.py:handler", command=("no-such-python",))
    absent = host.start(handler="/app/outputs/echo.py:handler", image="localhost:1/none:1")
    ended = await nothing.exited()
    assert ended.reason == "exited with code 127"
    assert "no-such-python" in ended.log_tail[0]
    reason = (await absent.exited()).reason
    assert reason.startswith(
        "the container of worker w2 cannot be run: image localhost:1/none:1 cannot be pulled"
    )


async def test_a_worker_without_an_image_is_a_plain_process_still(host: Any) -> None:
    handler = f"{Path(__file__).parents[3]}/handlers/outputs/echo.py:handler"
    worker = host.start(handler=handler, image="")
    worker.process.send(Frame("setup", {"handler": handler, "device": None, "concurrency": 1, "preload": []}))
    assert await output(worker, {"n": 1}) == {"n": 1}
    assert worker.process.pid > 0
    worker.process.send(Frame("stop"))
    await worker.exited()


# ---- protocol workers


PROGRAM = {"kind": "protocol", "concurrency": 4, "env": {"PYTHONPATH": "/packages", "TOKEN": "declared"}}


async def test_a_stock_program_in_a_container(host: Any, stock: None) -> None:
    worker = host.start(command=("python", "-u", "/programs/mixed.py"), **PROGRAM)
    await worker.received("ready")
    found = await output(worker, {"do": "environment"})
    assert found["environment"]["TOKEN"] == "declared"
    assert found["environment"]["RUNPOD_POD_ID"] == "w1"
    assert found["folder"] == "/programs", "the image's own"
    await run(worker, {"do": "print"}, job="j2")
    await worker.until(lambda: any("a line of the handler" in line for line in host.lines))
    await run(worker, {"do": "sleep", "s": 600}, job="j3")
    await worker.until(lambda: [f for f in worker.frames if f.kind == "begun" and f.fields["job"] == "j3"])
    worker.process.kill()
    assert (await worker.exited()).reason == "killed by the agent"


async def test_a_program_that_ends(host: Any) -> None:
    command = ("python", "-c", "print('no model'); raise SystemExit(7)")
    ended = await host.start(command=command, kind="protocol").exited()
    assert (ended.status, ended.reason, ended.log_tail) == (7, "exited with code 7", ("no model",))


# ---- what is left of an agent that was killed


async def test_a_later_agent_removes_what_an_earlier_one_left(host: Any, address: str) -> None:
    worker = host.start(
        command=("python", "-c", "import time; print('runs', flush=True); time.sleep(600)"), kind="protocol"
    )
    await worker.until(lambda: host.lines == ["runs"])
    later = await asyncio.to_thread(patient, address)
    assert await later.remove_all("agent-2") == 0, "another agent's"
    assert await later.remove_all("agent-1") == 1
    ended = (await worker.exited()).status
    assert ended in (-9, -15, LOST), "podman asks before it kills, and may forget how it ended"
    await asyncio.to_thread(later.close)


async def test_an_image_stays_what_it_was_for_a_version(host: Any) -> None:
    worker = host.python("outputs/echo")
    await worker.received("ready")
    pins = json.loads((host.folder / "images.json").read_text())
    (pin,) = pins.values()
    assert list(pins) == ["e1 1 stoker-test:1"]
    assert pin["id"].startswith("sha256:")
