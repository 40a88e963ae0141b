"""An agent that was told to stop: control hears of it at once, idle workers go, running work gets its grace.
And one whose control says goodbye: it comes back soon."""

from __future__ import annotations

import asyncio

from stoker.agent.jobs.reports import outbox_file
from stoker.wire.messages import FromControl, Refused


def now() -> float:
    return asyncio.get_running_loop().time()


def test_control_learns_of_it_at_once_and_in_every_session_that_follows(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 4}'))
        await host.holds_work()
        host.agent.stop()
        begun = now()
        await host.control.until(lambda: host.control.drains)
        assert now() - begun < 0.1
        host.control.stream.cut()
        await host.control.until(lambda: len(host.control.drains) == 2)
        assert (await host.control.outcome("j1")).end == "completed"
        assert len(host.control.drains) == 2

    play(story)


def test_an_agent_that_stays_never_says_so(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1"))
        await host.control.outcome("j1")
        await asyncio.sleep(20)
        assert host.control.drains == []

    play(story)


def test_idle_workers_go_at_once_and_a_busy_one_with_its_job(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker("w1"), a_worker("w2"))
        await host.control.assign(a_job("j1", b'{"run_s": 3}', on="w1"))
        await host.holds_work()
        begun = now()
        host.agent.stop()
        await host.control.worker_is("w2", "gone")
        assert now() - begun < 0.5
        assert host.spawner.of("w1").signals == []
        assert (await host.control.outcome("j1")).end == "completed"
        await host.control.worker_is("w1", "gone")
        assert now() - begun < 3.5
        assert host.spawner.spawned[0].signals == []

    play(story)


def test_a_worker_that_dies_meanwhile_is_not_started_again(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        await host.control.assign(a_job("j1", b'{"run_s": 1, "exit": -9}'), a_job("j2", b'{"run_s": 3}'))
        await host.holds_work()
        host.agent.stop()
        assert (await host.control.outcome("j1")).end == "lost"
        await host.control.worker_is("w1", "gone")
        assert len(host.spawner.spawned) == 1

    play(story)


def test_whatever_control_wants_meanwhile_nothing_is_started(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker("w1"))
        await host.control.assign(a_job("j1", b'{"run_s": 3}', on="w1"))
        await host.holds_work()
        host.agent.stop()
        await host.control.until(lambda: host.control.drains)
        await host.control.desire(a_worker("w1"), a_worker("w2"))
        assert (await host.control.outcome("j1")).end == "completed"
        await host.control.worker_is("w1", "gone")
        assert len(host.spawner.spawned) == 1

    play(story)


def test_the_grace_is_what_was_requested(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 12}'))
        await host.holds_work()
        host.agent.stop()
        assert (await host.control.outcome("j1")).end == "completed"

    play(story, settings={"grace_s": 15.0})


def test_what_could_not_be_returned_is_returned_by_the_next_life(play, a_worker, a_job):
    """Control is away while the agent ends."""

    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 60}'))
        await host.holds_work()
        host.control.up = False
        host.control.stream.cut()
        host.agent.stop()
        await host.until(lambda: host.disk.data and outbox_file.decode(host.disk.data))
        assert host.control.bodies(Refused) == []
        await asyncio.sleep(30)
        host.control.up = True
        second = host.new_agent()
        running = asyncio.create_task(second.run())
        refusal = await host.control.refused("j1")
        assert (refusal.reason, refusal.at_once) == ("the agent is shutting down", True)
        held = host.control.hellos[-1].attempts
        assert [(one.job, one.attempt, one.phase) for one in held] == [("j1", 1, "reporting")]
        second.stop()
        await running

    play(story)


def comes_back_after(play, refusal: FromControl, away_s: float) -> float:
    """How long it took the agent after control was there again."""
    took = []

    async def story(host):
        control = host.control
        await control.until(lambda: control.sessions == 1)
        control.up = False
        await control.say(refusal)
        control.stream.end("control is stopping")
        await asyncio.sleep(away_s)
        control.up = True
        back = now()
        await control.until(lambda: control.sessions == 2)
        took.append(now() - back)

    play(story)
    return took[0]


def test_an_agent_is_back_soon_after_a_control_that_announced_its_end(play):
    for away_s in (1.0, 7.0, 20.0):
        assert comes_back_after(play, FromControl(stopping=True), away_s) <= 0.5


def test_an_agent_is_soon_at_the_spare_of_a_control_that_was_killed(play):
    for away_s in (1.0, 3.2, 7.0):
        assert comes_back_after(play, FromControl(), away_s) <= 0.5


def test_of_a_control_that_did_not_come_back_it_expects_little_after_a_minute(play):
    assert comes_back_after(play, FromControl(stopping=True), 100.0) > 0.5
    assert comes_back_after(play, FromControl(), 20.0) > 0.5
