"""Older versions of the stock worker, which public ones pin. Each has a way of its own:

1.6.2   knows no batches: asks for each job alone, for several of them at the same time; dies of SIGTERM
1.7.4   asks for the next job before it counts the one that it was just given; gives a poll up after 30 s
1.7.13  keeps the jobs that run in a file of the folder that it starts in
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stoker.agent.workers.sdk_programs.protocol_machine import LOST
from stoker.worker.frames import Frame

PEERS = Path(__file__).parents[4] / ".peers"
VERSIONS = (Path(__file__).parents[3] / "conformance" / "peers" / "older.txt").read_text().split()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("stock"),
    pytest.mark.parametrize("version", VERSIONS),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def programs(stock: None, host: Any) -> AsyncIterator[dict[str, Any]]:
    """They start at the same time. Each that a test ends is that test's alone."""
    if not (PEERS / "older").exists():
        why = PEERS / "older.why"
        pytest.skip(
            why.read_text().strip() if why.exists() else "there is no .peers/older; .ci/peers makes it"
        )
    started = {}
    for version in VERSIONS:
        older = {"PYTHONPATH": str(PEERS / "older" / version)}
        started[version, "one"] = host.start("mixed.py", **older)
        started[version, "several"] = host.start("loaded_model.py", AT_ONCE="8", **older)
        started[version, "tokens"] = host.start("tokens.py", **older)
        started[version, "to be killed"] = host.start("loaded_model.py", **older)
        started[version, "to be drained"] = host.start("mixed.py", **older)
    for program in started.values():
        await program.until(lambda p=program: p.exit or [f for f in p.frames if f.kind == "ready"], 300)
        assert program.exit is None, program.exit
    yield started


async def test_what_a_handler_returns(programs: dict[str, Any], version: str) -> None:
    one = programs[version, "one"]
    for value in ({"a": 1.5}, "hello", [1, 2], False, None):
        assert await one.output({"do": "return", "value": value}) == value
    failed = await one.end(one.run({"do": "return", "value": {"error": "bad thing", "x": 1}}))
    assert (failed.fields["error"], json.loads(failed.body)) == ("bad thing", {"x": 1})
    received = json.loads(await one.error({"do": "raise"}))
    assert (received["error_message"], received["runpod_version"]) == ("no such voice: é", version)


async def test_a_result_that_is_never_sent_is_noticed(programs: dict[str, Any], version: str) -> None:
    one = programs[version, "one"]
    assert await one.error({"do": "unserialisable"}) == LOST
    assert await one.output({"do": "return", "value": 1}) == 1


async def test_jobs_of_one_worker_at_once(programs: dict[str, Any], version: str) -> None:
    """None counts as lost while it runs."""
    several = programs[version, "several"]
    jobs = [several.run({"wait": wait}) for wait in [0.0] * 60 + [1.0] * 8]
    assert {(await several.end(job)).kind for job in jobs} == {"done"}
    received = [frame.fields for frame in several.frames if frame.kind in ("ready", "slots")]
    assert max(fields.get("n", fields.get("concurrency")) for fields in received) > 1


async def test_tokens(programs: dict[str, Any], version: str) -> None:
    tokens = programs[version, "tokens"]
    job = tokens.run({"tokens": 3, "pause": 0.01})
    whole = json.loads((await tokens.end(job)).body)
    assert [one["text"] for one in whole] == ["token 0", "token 1", "token 2"]
    assert [json.loads(f.body) for f in tokens.about(job) if f.kind == "chunk"] == whole


async def test_one_that_was_killed_in_a_job_has_a_successor(
    programs: dict[str, Any], host: Any, version: str
) -> None:
    """Which does not take that job for its own."""
    killed = programs[version, "to be killed"]
    await killed.received(killed.run({"wait": 60}), "begun")
    killed.process.kill()
    await killed.exited()
    successor = host.start("loaded_model.py", PYTHONPATH=str(PEERS / "older" / version))
    await successor.ready()
    assert (await successor.output({"prompt": "a"}))["image"] == "YWFh"
    successor.process.kill()
    await successor.exited()


async def test_it_ends_after_its_job(programs: dict[str, Any], version: str) -> None:
    one = programs[version, "to be drained"]
    job = one.run({"do": "sleep", "s": 0.3})
    await one.received(job, "begun")
    one.process.send(Frame("stop"))
    assert (await one.end(job)).kind == "done"
    ended = await one.exited()
    assert ended.reason in ("exited with code 0", "stopped by the agent (SIGTERM)")
