"""Large outputs, large chunks and logs through real worker processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker.agent.jobs.attempts.chunks import HOLD_MAX
from stoker.agent.jobs.uploads.objects import S3Objects
from stoker.agent.workers.lifecycle.process_machine import StopLadder
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.wire.messages import Chunk
from tests.agent.real_processes import at_work

HANDLERS = Path(__file__).parents[3] / "handlers"
LARGE = 3_000_000


@pytest.fixture
async def real(a_host, a_worker, tmp_path):
    """A host whose workers are processes; `serve` starts one for a handler of tests/handlers."""
    host = a_host()
    host.spawner = LocalSpawner(tmp_path / "agent")
    host.scratch = ScratchFolders(tmp_path / "scratch")
    host.set(cancel_s=60.0, stop_ladder=StopLadder(term_s=0.2))

    async def serve(handler, **fields):
        await host.control.ready(a_worker(handler=f"{HANDLERS}/{handler}.py:handler", **fields))

    host.serve = serve
    async with at_work(host, tmp_path / "scratch"):
        yield host


def read(host, ref):
    return json.loads(host.objects.blobs["bucket", ref.key])


def chunk_lengths(host, name):
    """Number and length of each chunk, as control reads them."""
    chunks = [
        json.loads(c.value) if c.ref is None else read(host, c.ref) for c in host.control.about(Chunk, name)
    ]
    return [(chunk["n"], len(chunk["text"])) for chunk in chunks]


@pytest.mark.parametrize("size", [900_000, 999_990, 1_000_000, 5_000_000, 25_000_000, 70_000_000])
async def test_an_output_comes_whole_whatever_its_size(real, a_job, size):
    await real.serve("outputs/large_output")
    await real.control.assign(a_job("j1", json.dumps({"size": size}).encode()))
    outcome = await real.control.outcome("j1")
    assert outcome.end == "completed"
    assert (outcome.output is None) == (size + len('{"text":""}') > 1_000_000)
    output = json.loads(outcome.output) if outcome.output else read(real, outcome.output_ref)
    assert output == {"text": "x" * size}


async def test_after_an_output_that_no_frame_can_hold_the_next_job_runs(real, a_job):
    await real.serve("outputs/large_output")
    await real.control.assign(a_job("j1", b'{"size": 100000000}'))
    outcome = await real.control.outcome("j1")
    assert (outcome.end, outcome.output, outcome.output_ref.size) == ("completed", None, 100_000_011)
    assert outcome.artifacts == ()
    await real.control.assign(a_job("j2", b'{"size": 1}'))
    assert (await real.control.outcome("j2")).end == "completed"
    assert [news.state for news in real.control.news("w1")] == ["ready"]


@pytest.mark.parametrize("handler", ["streams/emits_large", "streams/async_emits_large"])
async def test_chunks_come_in_their_order(real, a_job, handler):
    await real.serve(handler)
    sizes = [10, LARGE, 10, 10, LARGE, LARGE, 999_900, 70_000_000, 10]
    await real.control.assign(a_job("j1", json.dumps({"sizes": sizes}).encode()))
    assert (await real.control.outcome("j1")).end == "completed"
    assert chunk_lengths(real, "j1") == list(enumerate(sizes))


async def test_a_handler_waits_for_a_store_that_is_down_and_memory_is_bounded(real, a_job):
    await real.serve("streams/emits_large")
    real.objects.down = True
    sizes = [LARGE] * 30
    await real.control.assign(a_job("j1", json.dumps({"sizes": sizes}).encode()))
    await real.until(lambda: real.agent.attempts._attempts)
    (attempt,) = real.agent.attempts._attempts.values()
    await real.until(lambda: attempt.stream is not None and len(attempt.stream._pieces) == 3)
    await real.until(lambda: len(real.objects.calls) >= 2)  # tried again: there was time for more
    assert sum(len(one.body) for one in attempt.stream._pieces.values()) <= HOLD_MAX + LARGE + 100
    assert len(attempt.stream._pieces) == 3
    real.objects.down = False
    assert (await real.control.outcome("j1")).end == "completed"
    assert chunk_lengths(real, "j1") == list(enumerate(sizes))


async def test_a_cancel_reaches_a_handler_that_waits_for_the_store(real, a_job):
    await real.serve("streams/emits_large")
    real.objects.down = True
    await real.control.assign(a_job("j1", json.dumps({"sizes": [LARGE] * 10, "then": "wait"}).encode()))
    await real.until(lambda: real.agent.attempts._attempts)
    (attempt,) = real.agent.attempts._attempts.values()
    await real.until(lambda: attempt.stream is not None and len(attempt.stream._pieces) == 3)
    await real.control.cancel("j1")
    outcome = await real.control.outcome("j1")
    assert (outcome.end, chunk_lengths(real, "j1")) == ("cancelled", [])
    real.objects.down = False
    await real.control.assign(a_job("j2", b"{}"))
    assert (await real.control.outcome("j2")).end == "completed"
    assert [news.state for news in real.control.news("w1")] == ["ready"], "its worker lives on"


async def test_an_error_comes_after_the_chunks_before_it(real, a_job):
    await real.serve("streams/emits_large")
    job_input = {"sizes": [LARGE, 10], "then": "raise"}
    await real.control.assign(a_job("j1", json.dumps(job_input).encode()))
    assert "after its chunks" in (await real.control.outcome("j1")).error
    assert chunk_lengths(real, "j1") == [(0, LARGE), (1, 10)]


# ---- logs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "end"), [("", "completed"), ("raise", "failed"), ("die", "lost"), ("stuck", "timed_out")]
)
async def test_every_end_brings_its_lines(real, a_job, then, end):
    await real.serve("printing/prints_much", env={"MY_TOKEN": "tok-12345"})
    real.agent.attempts._cancel_s = 0.1
    input_json = json.dumps({"then": then}).encode()
    await real.control.assign(
        a_job("j1", input_json, execution_timeout_ms=2_000 if then == "stuck" else 60_000)
    )
    outcome = await real.control.outcome("j1")
    assert outcome.end == end
    assert outcome.log == ("to stderr", "line 0 ", "line 1 ", "line 2 ", "***")


async def test_each_attempt_has_its_own_lines(real, a_job):
    await real.serve("printing/prints_much")
    for n in range(3):
        await real.control.assign(a_job(f"j{n}", json.dumps({"lines": n}).encode()))
        log = (await real.control.outcome(f"j{n}")).log
        assert log == ("to stderr", *(f"line {line} " for line in range(n)))


async def test_a_flood_ends_in_its_last_lines(real, a_job):
    await real.serve("printing/prints_much")
    await real.control.assign(a_job("j1", b'{"lines": 20000, "width": 300}'))
    log = (await real.control.outcome("j1")).log
    assert log[-1].startswith("line 19999 ")
    assert 40 < len(log) <= 100
    assert sum(len(line) + 1 for line in log) <= 16 * 1024


async def test_an_upload_that_takes_for_ever_holds_up_no_end_of_the_agent(real, a_job, unused_tcp_port):
    """A sparse file within the limits: to read it takes minutes."""
    real.agent.settings = replace(real.agent.settings, grace_s=0.5)
    objects = real.agent.attempts._objects = S3Objects(real.agent.signing)
    to = f"http://127.0.0.1:{unused_tcp_port}"
    grant = replace(a_job("j1").grant, endpoint_url=to, access_id="own", access_secret="bucket")
    await real.serve("files/sparse_file")
    input_json = json.dumps({"size": 200 << 30, "as": "output"}).encode()
    await real.control.assign(replace(a_job("j1", input_json), grant=grant))
    await real.until(lambda: real.agent.attempts._attempts and objects._stops)
    real.agent.stop()
    assert (await real.control.refused("j1")).reason == "the agent is shutting down"
    await objects.close()
    assert objects._stops == set()
