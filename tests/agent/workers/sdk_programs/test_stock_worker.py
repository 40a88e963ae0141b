"""The stock worker runs unmodified: every outcome of a handler, in the shapes of public workers."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stoker.agent.errors import SpawnFailed
from stoker.agent.workers.sdk_programs.protocol_machine import LOST, STOPPED
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("stock")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def programs(stock: None, host: Any) -> AsyncIterator[dict[str, Any]]:
    """They start at the same time. Each that a test ends is that test's alone."""
    started = {
        "many": host.start("mixed.py", AT_ONCE="16", TOKEN="declared"),
        "one": host.start("mixed.py"),
        "model": host.start("loaded_model.py", AT_ONCE="4"),
        "tokens": host.start("tokens.py"),
        "lines": host.start("lines.py"),
        "to be drained": host.start("mixed.py"),
        "to die": host.start("mixed.py"),
        "to be stopped": host.start("tokens.py"),
        "to be killed": host.start("loaded_model.py"),
    }
    for program in started.values():
        await program.ready()
    yield started


@pytest.fixture
def many(programs: dict[str, Any]) -> Any:
    return programs["many"]


async def test_what_a_handler_returns(many: Any) -> None:
    values = [{"a": 1.5, "b": "é"}, "hello", [1, 2], False, None]
    outputs = await asyncio.gather(*(many.output({"do": "return", "value": value}) for value in values))
    assert outputs == values
    empty = await many.end(many.run({"do": "return", "value": {}}))
    assert (empty.kind, empty.fields["has_output"], empty.body) == ("done", False, b"")


async def test_errors_as_they_came(many: Any) -> None:
    bad = many.run({"do": "return", "value": {"error": "bad thing", "x": 1}})
    coded = many.run({"do": "return", "value": {"error": {"code": 5}}})
    raised, missing = many.run({"do": "raise"}), many.run({"do": "missing"})
    frame = await many.end(bad)
    assert (frame.fields["error"], json.loads(frame.body)) == ("bad thing", {"x": 1})
    frame = await many.end(coded)
    assert (frame.fields["error"], frame.body) == ('{"code": 5}', b"")
    received = json.loads((await many.end(raised)).fields["error"])
    assert received["error_type"] == "<class '__main__.Boom'>"
    assert received["error_message"] == "no such voice: é"
    assert "raise Boom" in received["error_traceback"]
    assert (received["worker_id"], received["hostname"]) == (many.worker, many.worker)
    assert received["runpod_version"] == "1.12.0"
    assert "KeyError" in json.loads((await many.end(missing)).fields["error"])["error_type"]


async def test_the_job_as_the_handler_gets_it(many: Any) -> None:
    bucket = {"accessId": "a", "accessSecret": "s", "bucketName": "b", "endpointUrl": "http://s3"}
    got = await many.output({"do": "job", "n": 1.5}, more={"s3Config": bucket, "traceparent": "00-a"})
    assert got["job"]["input"] == {"do": "job", "n": 1.5}
    assert got["job"]["s3Config"] == bucket
    assert got["job"]["traceparent"] == "00-a"
    assert set(got["job"]) == {"id", "input", "s3Config", "traceparent"}
    assert (await many.output({}))["echo"] == {}, "an empty input arrives"


@pytest.mark.slow
async def test_large_outputs(many: Any) -> None:
    assert len((await many.output({"do": "large", "size": 24_000_000}))["blob"]) == 24_000_000
    error = await many.error({"do": "large", "size": 70_000_000})
    assert "over the limit of 67108864; upload a file" in error


async def test_a_number_that_json_has_not(many: Any) -> None:
    assert await many.error({"do": "nan"}) == (
        "the worker posted a result that is not a JSON object: NaN is not a JSON value"
    )


async def test_progress_comes_before_the_end_or_not_at_all(many: Any, tmp_path: Path) -> None:
    """Each step is posted by a thread of its own, in any order, and maybe behind the result."""
    job = many.run({"do": "progress", "go": str(tmp_path / "go")})
    await many.received(job, "progress")
    (tmp_path / "go").touch()
    await many.end(job)
    values = [json.loads(frame.body)["step"] for frame in many.about(job) if frame.kind == "progress"]
    assert values
    assert set(values) <= {0, 1, 2}
    await many.output({"do": "sleep", "s": 0.3})
    assert many.about(job)[-1].kind == "done", "what came late is ignored"


async def test_the_environment_of_a_worker(many: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    got = await many.output({"do": "environment"})
    env = got["environment"]
    ours = {name for name in env if not name.startswith("RUNPOD_")}
    assert ours == {
        *(
            "PATH",
            "HOME",
            "LANG",
            "CUDA_VISIBLE_DEVICES",
            "PYTHONUNBUFFERED",
            "STOKER_WORKER",
            "STOKER_AGENT",
            "STOKER_AGENT_LIFE",
        ),
        *("TOKEN", "AT_ONCE"),
    }
    assert env["TOKEN"] == "declared"
    assert env["RUNPOD_POD_ID"] == env["STOKER_WORKER"] == many.worker
    assert got["folder"] == f"{env['HOME']}/work", "its own"
    assert got["home"] == ["work"], "nobody's configuration lies there"


async def test_what_it_prints_is_received(many: Any) -> None:
    listen = many.process.tail.listen()
    assert await many.output({"do": "print"}) is None
    assert "a line of the handler" in [line.text for line in listen.after(0)[1]]


async def test_pings_are_recorded(many: Any) -> None:
    """The first may come after the first job-take; it sends no event."""
    async with asyncio.timeout(60):
        while many.process.last_ping is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


# ---- one job at a time


async def test_a_result_that_is_never_sent_is_noticed_at_the_next_take(programs: dict[str, Any]) -> None:
    one = programs["one"]
    assert await one.error({"do": "unserialisable"}) == LOST
    assert await one.output({"do": "return", "value": 1}) == 1, "and the next job runs"


async def test_a_job_begins_when_it_is_handed_over(programs: dict[str, Any]) -> None:
    one = programs["one"]
    first, second = one.run({"do": "sleep", "s": 0.1}), one.run({"do": "return", "value": 2})
    await one.end(second)
    kinds = [(frame.job, frame.kind) for frame in one.frames if frame.fields.get("job") in (first, second)]
    assert kinds == [(first, "begun"), (first, "done"), (second, "begun"), (second, "done")]


async def test_what_waits_can_be_cancelled_and_what_blocks_cannot(
    programs: dict[str, Any], tmp_path: Path
) -> None:
    one, go = programs["one"], tmp_path / "go"
    blocks = {"do": "wait", "begun": str(tmp_path / "begun"), "go": str(go)}
    running, waiting = one.run(blocks), one.run({"do": "pid"})
    await one.received(running, "begun")
    one.process.send(Frame("cancel", {"job": waiting, "attempt": 1}))
    one.process.send(Frame("cancel", {"job": running, "attempt": 1}))
    assert (await one.end(waiting)).fields["error"] == STOPPED
    go.touch()
    assert json.loads((await one.end(running)).body) == "waited", "a synchronous handler goes on to its end"


# ---- shapes of public workers


async def test_a_loaded_model_and_an_async_handler(programs: dict[str, Any]) -> None:
    model = programs["model"]
    got = await asyncio.gather(*(model.output({"prompt": f"p{n}"}) for n in range(4)))
    assert [base64.b64decode(one["image"]).decode() for one in got] == [f"p{n}" * 3 for n in range(4)]
    assert {one["loaded_in"] for one in got} == {model.process.pid}
    route = {"openai_route": "/v1/chat/completions", "openai_input": {"model": "m", "stream": False}}
    assert await model.output(route) == {"route": "/v1/chat/completions", "model": "m"}


async def test_an_async_handler_is_stopped_and_its_neighbours_go_on(programs: dict[str, Any]) -> None:
    model = programs["model"]
    stopped, neighbour = model.run({"wait": 60}), model.run({"wait": 1.5})
    await model.received(stopped, "begun")
    await model.received(neighbour, "begun")
    model.process.send(Frame("cancel", {"job": stopped, "attempt": 1}))
    assert (await model.end(stopped)).fields["error"] == STOPPED
    assert (await model.end(neighbour)).kind == "done"
    assert stopped in await model.output({"ended": True}), "its finally ran"


async def test_tokens_are_streamed_in_order_and_aggregated(programs: dict[str, Any]) -> None:
    tokens = programs["tokens"]
    jobs = [tokens.run({"tokens": 3, "pause": 0.01}) for _ in range(3)]
    for job in jobs:
        whole = json.loads((await tokens.end(job)).body)
        chunks = [frame for frame in tokens.about(job) if frame.kind == "chunk"]
        assert [frame.fields["n"] for frame in chunks] == [0, 1, 2]
        assert [json.loads(frame.body) for frame in chunks] == whole
        assert [one["text"] for one in whole] == ["token 0", "token 1", "token 2"]


async def test_a_generator_that_raises(programs: dict[str, Any]) -> None:
    tokens = programs["tokens"]
    job = tokens.run({"tokens": 3, "raise_after": 1})
    error = (await tokens.end(job)).fields["error"]
    assert error.startswith("handler: the engine died \ntraceback: Traceback")
    assert [frame.kind for frame in tokens.about(job)] == ["begun", "chunk", "chunk", "failed"]


async def test_a_large_chunk_waits_until_it_is_taken(programs: dict[str, Any]) -> None:
    tokens = programs["tokens"]
    job = tokens.run({"tokens": 2, "filler": 1_200_000})
    first = await tokens.received(job, "chunk")
    assert len(first.body) > 1_200_000
    assert [frame.kind for frame in tokens.about(job)] == ["begun", "chunk"]
    for n in range(2):
        await tokens.until(lambda n=n: [f for f in tokens.about(job) if f.fields.get("n") == n])
        tokens.process.send(Frame("took", {"job": job, "attempt": 1, "n": n}))
    assert (await tokens.end(job)).kind == "done"


async def test_a_paused_program_waits_and_nothing_is_lost(programs: dict[str, Any]) -> None:
    tokens = programs["tokens"]
    tokens.process.pause()
    job = tokens.run({"tokens": 2})
    await programs["many"].output({"do": "sleep", "s": 0.2})
    assert tokens.about(job) == []
    tokens.process.resume()
    await tokens.end(job)
    assert [frame.kind for frame in tokens.about(job)] == ["begun", "chunk", "chunk", "done"]


async def test_a_generator_without_aggregation(programs: dict[str, Any]) -> None:
    lines = programs["lines"]
    job = lines.run({"yields": ["a", {"b": 1}, None]})
    assert json.loads((await lines.end(job)).body) == []
    chunks = [json.loads(frame.body) for frame in lines.about(job) if frame.kind == "chunk"]
    assert chunks == ["a", {"b": 1}, None]


async def test_a_generator_that_yields_an_error(programs: dict[str, Any]) -> None:
    lines = programs["lines"]
    job = lines.run({"yields": ["a", {"error": {"code": 5}}, "never"]})
    assert (await lines.end(job)).fields["error"] == "{'code': 5}"
    assert [frame.kind for frame in lines.about(job)] == ["begun", "chunk", "failed"]


# ---- ends


@pytest.mark.slow
async def test_refresh_worker_by_what_is_returned_and_by_configuration(host: Any) -> None:
    refreshing, config = host.start("one_job_each.py"), host.start("one_job_each.py", BY_CONFIG="yes")
    for program, job_input in ((refreshing, {"asks": True}), (config, {})):
        await program.ready()
        first, second = program.run(job_input), program.run(job_input)
        assert json.loads((await program.end(first)).body) == {"pid": program.process.pid}
        assert (await program.end(second)).kind == "returned", "it is handed back, not lost"
        kinds = [frame.kind for frame in program.frames]
        assert kinds == ["ready", "begun", "retire", "returned", "done"]
        assert (await program.exited()).reason == "exited with code 0"


async def test_drained_it_ends_after_what_runs(programs: dict[str, Any]) -> None:
    one = programs["to be drained"]
    job = one.run({"do": "sleep", "s": 0.5})
    await one.received(job, "begun")
    one.process.send(Frame("stop"))
    assert json.loads((await one.end(job)).body) == "slept"
    assert (await one.exited()).reason == "exited with code 0"


async def test_a_program_that_dies_in_a_job(programs: dict[str, Any]) -> None:
    program = programs["to die"]
    program.run({"do": "die"})
    assert (await program.exited()).reason == "exited with code 3"


async def test_sigterm_while_a_handler_runs_lets_it_finish(programs: dict[str, Any]) -> None:
    tokens = programs["to be stopped"]
    job = tokens.run({"tokens": 3, "pause": 0.1})
    await tokens.received(job, "chunk")
    tokens.process.terminate()
    late = tokens.run({"tokens": 1})
    assert (await tokens.end(job)).kind == "done"
    assert (await tokens.exited()).status == 0
    assert tokens.about(late) == [], "no job for a program that was asked to stop"


async def test_a_killed_program_takes_its_pinger_along(programs: dict[str, Any]) -> None:
    model = programs["to be killed"]
    group = model.process.pid
    model.process.kill()
    await model.exited()
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


async def test_programs_that_do_not_start(host: Any) -> None:
    unfit = host.start("unfit.py")
    nothing = host.start("", command=("no-such-program",))
    ends = host.start("", command=("sh", "-c", "echo no model; exit 7"))
    assert (await ends.exited()).reason == "exited with code 7"
    assert ends.exit.log_tail == ("no model",)
    assert (await nothing.exited()).log_tail == ("no-such-program cannot be run: No such file or directory",)
    await unfit.exited()
    assert [frame.kind for frame in unfit.frames] == ["setup_failed"]
    assert unfit.frames[0].fields["error"] == (
        "fitness check no_driver failed: RuntimeError: no driver on this host"
    )


async def test_what_cannot_be_started_raises_with_the_reason(host: Any) -> None:
    for folder, command, pattern in (
        ("/no/such/folder", ("sh",), "there is no folder /no/such/folder"),
        ("/tmp", (), "endpoint e1 names no command for its protocol worker"),
    ):
        with pytest.raises(SpawnFailed, match=pattern):
            host.spawner.spawn(
                WorkerSpec("w0", "e1", 1, folder, kind="protocol", command=command), None, None
            )
