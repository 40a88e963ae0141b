"""How many jobs a worker takes at once: told to control, kept in Hello, and held by the agent."""

from __future__ import annotations

import asyncio

from stoker.wire.messages import Refused
from stoker.worker.frames import Frame

SLOW = b'{"run_s": 50}'


def slots(now: int) -> Frame:
    return Frame("slots", {"n": now})


def refused(host) -> list[str]:
    return [report.body.job for report in host.control.reports if isinstance(report.body, Refused)]


def test_control_learns_how_many_slots_a_worker_has_and_every_change(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker(concurrency=4))
        process = host.spawner.of("w1")
        for now in (2, 2, 9, 1, 3):
            process.emit(slots(now))
        await host.control.until(lambda: host.control.news("w1")[-1].slots == 3)
        assert [news.slots for news in host.control.news("w1")] == [4, 2, 4, 1, 3], "within the endpoint's"
        assert {news.state for news in host.control.news("w1")} == {"ready"}

    play(story)


def test_more_than_its_slots_are_refused_and_fewer_slots_let_the_jobs_end(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        await host.control.assign(a_job("j1", SLOW), a_job("j2", SLOW))
        await asyncio.sleep(1.0)
        host.spawner.of("w1").emit(slots(1))
        await host.control.until(lambda: host.control.news("w1")[-1].slots == 1)
        await host.control.assign(a_job("j3"))
        await host.control.until(lambda: refused(host) == ["j3"])
        assert [(await host.control.outcome(job)).end for job in ("j1", "j2")] == ["completed"] * 2
        await host.control.assign(a_job("j4", SLOW), a_job("j5", SLOW))
        assert (await host.control.outcome("j4")).end == "completed"
        assert refused(host) == ["j3", "j5"]

    play(story)


def test_a_new_connection_receives_the_slots(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker(concurrency=4), a_worker("w2", endpoint="never"))
        host.spawner.of("w1").emit(slots(3))
        await host.control.until(lambda: host.control.news("w1")[-1].slots == 3)
        host.control.stream.cut()
        await host.control.until(lambda: len(host.control.hellos) == 2)
        held = {worker.worker: worker.slots for worker in host.control.hellos[-1].workers}
        assert held == {"w1": 3, "w2": 1}

    play(story)


def test_a_fresh_process_begins_with_its_own_number(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker(concurrency=4))
        host.spawner.of("w1").emit(slots(2))
        await host.control.until(lambda: host.control.news("w1")[-1].slots == 2)
        host.spawner.of("w1").exit(-9)
        await host.control.until(lambda: len(host.control.news("w1")) == 4)
        reported = [(news.state, news.slots) for news in host.control.news("w1")]
        assert reported == [("ready", 4), ("ready", 2), ("starting", None), ("ready", 4)]

    play(story)


def test_a_slots_frame_without_a_number_ends_the_process(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker(concurrency=4))
        host.spawner.of("w1").emit(Frame("slots", {"n": "many"}))
        await host.control.until(lambda: host.control.news("w1")[-1].state != "ready")
        assert host.spawner.spawned[0].signals == ["KILL"]

    play(story)
