"""What an agent tells of its workers' time: through jobs, deaths, outages, and its own end."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from stoker.wire.messages import Usage


def spans(host, owner="w1"):
    bodies = (report.body for report in host.control.reports)
    return [body for body in bodies if isinstance(body, Usage) and body.owner == owner]


def lengths(found):
    return [(span.state, span.ended_ms - span.began_ms) for span in found]


def test_a_worker_is_measured_from_its_start_to_its_end(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await asyncio.sleep(10.0)
        await host.control.assign(a_job("j1", b'{"run_s": 7}'))
        await host.control.outcome("j1")
        await asyncio.sleep(6.0)
        await host.control.desire()
        await host.until(lambda: len(spans(host)) >= 4)
        found = spans(host)
        assert [span.state for span in found] == ["starting", "idle", "running", "idle"]
        assert all(one.ended_ms == other.began_ms for one, other in pairwise(found))
        assert {(span.owner, span.boot, span.endpoint) for span in found} == {("w1", host.agent.boot, "e1")}
        assert found[0].devices == a_worker().devices
        assert 7_000 <= found[2].ended_ms - found[2].began_ms <= 7_100

    play(story)


def test_what_was_measured_in_an_outage_outlives_a_kill_of_the_agent(simulated, a_host, a_worker):
    """Cut spans are on the disk, joined to few; what was open when the agent died is not told."""
    loop = simulated.VirtualLoop(3)

    async def story():
        host = a_host()
        first = simulated.Process("agent")
        loop.start(first, host.agent.run())
        await host.control.ready(a_worker())
        boot, began = host.agent.boot, asyncio.get_running_loop().time()
        host.control.up = False
        host.control.stream.end("gone")
        await asyncio.sleep(330.0)
        assert spans(host) == []
        loop.kill(first)
        host.spawner.vanish()
        host.control.up = True
        second = host.new_agent()
        running = asyncio.create_task(second.run())
        await host.control.until(lambda: spans(host))
        await asyncio.sleep(5.0)
        found = [span for span in spans(host) if span.boot == boot]
        assert [state for state, _ in lengths(found)] == ["starting", "idle"]
        assert 270_000 <= found[-1].ended_ms - began * 1000 <= 330_000
        second.stop()
        await running

    simulated.run(loop, story())


def test_a_worker_is_not_measured_while_it_waits_to_start_again(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker())
        worker = host.agent.workers.by_name["w1"]
        for _ in range(4):
            host.spawner.of("w1").exit(-9)
            await host.until(lambda: worker.held().state != "ready")
            await host.until(lambda: worker.held().state == "ready")
        await asyncio.sleep(70.0)
        found = spans(host)
        gaps = [other.began_ms - one.ended_ms for one, other in pairwise(found)]
        assert min(gaps) == 0
        assert max(gaps) >= 1_000
        assert [span.n for span in found] == list(range(1, len(found) + 1))

    play(story)
