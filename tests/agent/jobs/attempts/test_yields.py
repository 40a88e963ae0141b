"""Stories of attempts that are asked to yield: each ends at its next save; one that does not save runs on."""

from __future__ import annotations

import asyncio
import json

import pytest

from stoker.wire.messages import Outcome, Refused, Save
from stoker.worker.frames import Frame

LONG = {"chunks": ["a", "b", "c", "d"], "saves": 2, "output": {}, "run_s": 10}


def script(**steps):
    return json.dumps(steps).encode()


@pytest.mark.parametrize("bytes_each", [0, 100_000])
def test_it_ends_at_its_next_save(play, a_worker, a_job, bytes_each):
    async def story(host):
        host.objects.delay = lambda: 3.0  # longer than any other end but success waits
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(**LONG, save_bytes=bytes_each)))
        await host.holds_work()
        await host.control.ask_to_yield("j1")
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.error, outcome.retryable) == ("yielded", "the node leaves", True)
        assert [save.upto for save in host.control.about(Save, "j1")] == [2]
        assert isinstance(host.control.reports[-1].body, Outcome), "the save is stored before"
        assert 5_000 < outcome.execution_ms < 6_000, "what ran is billed, of ten seconds"
        assert host.spawner.of("w1").signals == []

    play(story)


def test_one_that_does_not_save_runs_on(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(output="whole", run_s=5)))
        await host.holds_work()
        await host.control.ask_to_yield("j1")
        await host.control.ask_to_yield("j1")
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.output) == ("completed", b'"whole"')
        sent = [frame for frame in host.spawner.of("w1").sent if frame.kind == "yield"]
        assert sent == [Frame("yield", {"job": "j1", "attempt": 1, "reason": "the node leaves"})], "once"

    play(story)


def test_an_agent_that_stops_asks_all_that_runs(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        await host.control.assign(a_job("j1", script(**LONG)), a_job("j2", script(output=1, run_s=12)))
        await host.holds_work()
        host.agent.stop()
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.error) == ("yielded", "node host is about to leave")
        assert (await host.control.outcome("j2")).end == "completed"

    play(story, settings={"grace_s": 30.0})


def test_a_control_of_an_earlier_version_is_told_of_no_yield(play, a_worker, a_job):
    async def story(host):
        host.control.yields = False
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(**{**LONG, "run_s": 4})))
        await host.holds_work()
        host.agent.stop()
        assert (await host.control.outcome("j1")).end == "completed"

    play(story)


def test_a_worker_that_yields_unasked_broke_the_protocol(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(output=1, run_s=5)))
        await host.holds_work()
        about = {"job": "j1", "attempt": 1, "error": "yielded", "retryable": True, "yielded": True}
        host.spawner.of("w1").emit(Frame("failed", about))
        outcome = await host.control.outcome("j1")
        assert outcome.end == "lost"
        assert "it yielded job j1, and was not asked to" in outcome.error
        assert host.control.about(Refused, "j1") == []

    play(story)


def test_an_agent_whose_host_is_taken_back_is_gone_in_time(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        never = script(output=1, run_s=500, ignore_cancel=True)
        await host.control.assign(a_job("j1", script(**LONG)), a_job("j2", never))
        await host.holds_work()
        began = asyncio.get_running_loop().time()
        host.agent.leave("aws takes the host of node host back at 12:28:10 UTC", 30.0)
        outcome = await host.control.outcome("j1")
        assert outcome.error == "aws takes the host of node host back at 12:28:10 UTC"
        back = await host.control.refused("j2")
        assert (back.reason, back.at_once) == ("the agent is shutting down", True)
        assert 20.0 < asyncio.get_running_loop().time() - began < 30.0

    play(story)
