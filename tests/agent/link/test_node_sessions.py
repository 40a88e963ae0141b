"""Stories of connections and workers: what breaks, what is sent again, what is stopped."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from stoker.agent.errors import AgentRefused
from stoker.agent.jobs.reports import outbox, outbox_file
from stoker.agent.node import OTHERS_S
from stoker.agent.workers.lifecycle.process_life import WAITING_MOST
from stoker.testing.fake_spawner import Start
from stoker.wire.messages import AttemptKey, Chunk, Outcome, Progress, Released, WorkerState


def now() -> float:
    return asyncio.get_running_loop().time()


# ---- the connection


def test_hello_lists_what_is_there(play):
    async def story(host):
        await host.control.until(lambda: host.control.hellos)
        (hello,) = host.control.hellos
        assert (hello.protocol, hello.node, hello.first_unacked) == (1, "node-1", 1)
        assert [device.uuid for device in hello.devices] == ["cpu-0"]
        assert hello.jobs_ahead == WAITING_MOST

    play(story)


def test_what_a_worker_serves_is_reported_and_reported_again(play, a_worker, caplog):
    """With its secrets cut out, and no more once its process has ended."""
    caplog.set_level("INFO")

    async def story(host):
        host.spawner.starts["e1"] = Start(serves="flux-1-dev with tea-and-biscuits")
        await host.control.ready(
            a_worker(endpoint="e1", env={"TOKEN": "tea-and-biscuits"}, hidden=("tea-and-biscuits",))
        )
        reported = host.control.news("w1")[-1].serves
        assert reported.startswith("flux-1-dev with ")
        assert "biscuits" not in reported
        assert f"worker w1 of endpoint e1 runs {reported}" in caplog.text
        host.control.stream.cut()
        await host.control.until(lambda: len(host.control.hellos) == 2)
        assert host.control.hellos[-1].workers[0].serves == reported
        host.spawner.starts["e1"] = Start(setup_error="no weights")
        host.spawner.processes[0].exit(1)
        assert (await host.control.worker_is("w1", "starting")).serves == ""

    play(story)


def test_what_was_not_acknowledged_is_sent_again_in_order(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.control.acks = False
        await host.control.assign(a_job("j1", b'{"chunks": [1, 2, 3]}'))
        await host.control.outcome("j1")
        sent = [report.number for report in host.control.reports if report.body.__class__ is not WorkerState]
        host.control.reports.clear()
        host.control.acks = True
        host.control.stream.cut()
        await host.control.outcome("j1")
        again = [report.number for report in host.control.reports]
        assert again == sent
        hello = host.control.hellos[-1]
        assert [(held.job, held.phase) for held in hello.attempts] == [("j1", "reporting")]
        assert hello.first_unacked == sent[0]
        assert [(held.worker, held.state) for held in hello.workers] == [("w1", "ready")]
        await host.control.until(lambda: host.agent.reports.empty)

    play(story)


def test_news_of_the_host_is_reported_and_costs_no_job(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 10}'))
        await host.holds_work()
        host.agent.learn({"containers": "docker 28.0.1"})
        await host.control.until(lambda: len(host.control.hellos) == 2)
        hello = host.control.hellos[-1]
        assert hello.facts == {"gpu": "none", "containers": "docker 28.0.1"}
        assert [(held.job, held.phase) for held in hello.attempts] == [("j1", "running")]
        assert (await host.control.outcome("j1")).end == "completed"
        assert now() < 12, "it ran once"

    play(story, {"facts": {"gpu": "none", "containers": "none: it does not answer"}})


def test_a_node_comes_back_at_once_with_the_credential_that_it_got(play, a_worker, a_job, caplog):
    """Until it was used, whoever has the join token may speak as this node."""
    caplog.set_level("INFO")

    async def story(host):
        caplog.clear()
        host.control.gives = ["nk_1_2"]
        await host.control.until(lambda: host.control.sessions)
        assert now() < 0.01
        assert len(host.control.hellos) == 2
        assert caplog.text.count("this node joined; it reconnects with a credential of its own") == 1
        assert "not connected" not in caplog.text
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1"))
        assert (await host.control.outcome("j1")).end == "completed"
        assert host.credentials == ["nk_1_2"]

    play(story)


def test_a_node_that_cannot_keep_its_credential_tries_again_and_opens_no_session(play, caplog):
    caplog.set_level("INFO")

    async def story(host):
        caplog.clear()
        host.control.gives, host.full = ["nk_1_2"], True
        await asyncio.sleep(60)
        assert 5 < len(host.control.hellos) < 20
        assert host.control.sessions == 0
        why = "not connected: the credential that this node joined with could not be kept; trying again in"
        assert caplog.text.count(why) == 1, "it is the same each time"
        host.full = False
        await host.control.until(lambda: host.control.sessions)
        assert host.credentials == ["nk_1_2"]

    play(story)


def test_a_control_that_gives_one_credential_after_another_is_not_called_without_pause(play):
    async def story(host):
        host.control.gives = [f"nk_{n}" for n in range(1000)]
        await asyncio.sleep(60)
        assert 5 < len(host.control.hellos) < 20
        host.control.gives.clear()

    play(story)


def test_an_acknowledgement_prunes_the_outbox_and_forgets_the_attempt(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        for n in range(20):
            await host.control.assign(a_job(f"j{n}"))
            await host.control.outcome(f"j{n}")
        await asyncio.sleep(1)
        assert host.agent.reports.empty
        assert host.agent.attempts._attempts == {}
        assert host.agent.attempts._outcomes == {}
        assert host.disk.saves == 0

    play(story)


def test_a_job_outlives_a_short_cut(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 10}'))
        await host.holds_work()
        host.control.up = False
        host.control.stream.cut()
        await asyncio.sleep(20)
        host.control.up = True
        await host.control.until(lambda: len(host.control.hellos) == 2)
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.execution_ms) == ("completed", 10000)

    play(story)


def test_reconnects_are_backed_off_and_jittered(play):
    async def story(host):
        tries = []
        connect = host.control.connect

        async def counted():
            tries.append(now())
            return await connect()

        host.control.connect = counted
        host.control.up = False
        await asyncio.sleep(300)
        waits = [b - a for a, b in itertools.pairwise(tries)]
        assert 0.05 <= waits[0] <= 0.2
        assert max(waits) <= 10.0
        assert waits[-1] >= 5.0
        assert len({round(wait, 6) for wait in waits[-5:]}) == 5

    play(story)


def test_a_refusal_ends_the_agent_with_controls_message(in_time, a_host):
    async def story():
        host = a_host()
        host.control.refusal = "this join token is not known"
        with pytest.raises(AgentRefused, match="this join token is not known"):
            await host.agent.run()
        assert len(host.control.hellos) == 1

    in_time(story())


def test_a_connection_that_answers_no_more_is_given_up(play):
    async def story(host):
        await host.control.until(lambda: host.control.stream)
        host.control.beats_acked = False
        begun = now()
        await host.control.until(lambda: len(host.control.hellos) == 2)
        assert now() - begun <= 30

    play(story)


def test_a_control_that_answers_no_more_is_left_for_the_next_address_and_one_that_was_cut_off_is_not(play):
    async def story(host):
        good = []
        host.after_session = lambda welcomed: good.append(welcomed) or not welcomed
        await host.control.until(lambda: host.control.stream)
        host.control.stream.cut()
        await host.control.until(lambda: len(host.control.hellos) == 2)
        assert good == [True]
        host.control.beats_acked = False
        await host.control.until(lambda: len(host.control.hellos) == 3)
        assert good == [True, False]

    play(story)


def test_beats_carry_each_sample_once_and_keep_the_lease(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 300}'))
        assert (await host.control.outcome("j1")).end == "completed"
        times = [at for at, _ in host.control.beats]
        assert {round(b - a) for a, b in itertools.pairwise(times)} == {5}
        assert all(len(beat.samples) <= 1 for _, beat in host.control.beats)
        # a sample and a beat due at the same moment come in any order
        assert sum(len(beat.samples) for _, beat in host.control.beats) >= len(times) / 2

    play(story)


def test_an_agent_cut_off_longer_than_its_lease_stops_its_own_work(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 3600}', execution_timeout_ms=7200_000))
        await asyncio.sleep(100)
        host.control.up = False
        host.control.stream.cut()
        last_beat = host.control.beats[-1][0]
        await host.until(lambda: not host.agent.attempts.held())
        assert 45 <= now() - last_beat <= 45 + 5 + 1
        host.control.up = True
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.retryable) == ("lost", True)
        assert "lease" in outcome.error

    play(story)


def test_a_result_survives_an_outage_that_is_longer_than_the_lease(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.down = True
        script = b'{"files": [{"name": "a"}], "output": [{"$file": 0}]}'
        await host.control.assign(a_job("j1", script), a_job("j2", b'{"output": 2}'))
        await host.holds_work()
        host.control.up = False
        host.control.stream.cut()
        await asyncio.sleep(3600)
        host.control.up, host.objects.down = True, False
        assert (await host.control.outcome("j1")).end == "completed"

    play(story)


def test_a_host_that_slept_stops_what_ran(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 60}'))
        await asyncio.sleep(1)
        host.asleep += 120
        assert (await host.control.outcome("j1")).end == "lost"

    play(story)


def test_what_control_says_stop_to_ends_and_is_not_reported(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        host.control.acks = False
        await host.control.assign(a_job("j1", b'{"run_s": 500, "ignore_cancel": true}'), a_job("j2"))
        await host.control.outcome("j2")
        host.control.stop = (AttemptKey("j1", 1), AttemptKey("j2", 1))
        host.control.reports.clear()
        host.control.stream.cut()
        await host.control.until(lambda: host.control.about(Released, "j1"))
        assert host.control.bodies(Outcome) == []
        assert host.spawner.spawned[0].signals == ["TERM"]

    play(story)


def test_a_full_outbox_stops_reading_the_workers_until_there_is_room(play, a_worker, a_job, monkeypatch):
    monkeypatch.setattr(outbox, "FULL_COUNT", 10)

    async def story(host):
        await host.control.ready(a_worker())
        host.control.acks = False
        script = {"run_s": 20, "chunks": list(range(40))}
        await host.control.assign(a_job("j1", json.dumps(script).encode()))
        await asyncio.sleep(30)
        assert host.spawner.of("w1").paused
        assert len(host.control.bodies(Chunk)) == 10
        host.control.acks = True
        host.control.stream.cut()
        await host.control.outcome("j1")
        assert [chunk.n for chunk in host.control.bodies(Chunk)] == list(range(40))
        assert not host.spawner.of("w1").paused

    play(story)


# ---- the disk, kill -9 and SIGTERM


def test_a_result_outlives_a_kill_of_the_agent(simulated, a_host, a_worker, a_job):
    loop = simulated.VirtualLoop(3)

    async def story():
        host = a_host()
        first = simulated.Process("agent")
        loop.start(first, host.agent.run())
        await host.control.ready(a_worker())
        host.control.acks = False
        await host.control.assign(a_job("j1", b'{"output": "kept", "chunks": ["c"]}'))
        await host.control.outcome("j1")
        await asyncio.sleep(2)
        assert host.disk.saves == 1
        loop.kill(first)
        host.spawner.vanish()
        host.control.stream.cut()
        host.control.reports.clear()
        host.control.acks = True
        second = host.new_agent()
        running = loop.create_task(second.run())
        outcome = await host.control.outcome("j1")
        assert json.loads(outcome.output) == "kept"
        assert [json.loads(chunk.value) for chunk in host.control.bodies(Chunk)] == ["c"]
        hello = host.control.hellos[-1]
        assert hello.boot != host.control.hellos[0].boot
        assert [(held.job, held.phase) for held in hello.attempts] == [("j1", "reporting")]
        assert hello.workers == ()
        await asyncio.sleep(5)
        # acknowledged: a third life must not report it again
        assert outbox_file.decode(host.disk.data) == []
        second.stop()
        await running

    simulated.run(loop, story())


def test_it_is_on_disk_before_any_upload(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.control.acks = False
        host.objects.down = True
        script = {"chunks": ["c"], "files": [{"name": "a"}], "output": [{"$file": 0}]}
        await host.control.assign(a_job("j1", json.dumps(script).encode()))
        await host.control.until(lambda: host.objects.calls)
        assert [body.n for body in outbox_file.decode(host.disk.data)] == [0]
        await host.control.cancel("j1")
        await host.control.outcome("j1")

    play(story)


def test_a_full_disk_is_no_lost_report(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.disk.full = True
        host.control.acks = False
        await host.control.assign(a_job("j1"))
        await host.control.outcome("j1")
        await asyncio.sleep(5)
        assert host.disk.saves == 0
        host.disk.full = False
        await asyncio.sleep(5)
        assert host.disk.saves == 1

    play(story)


def test_stop_lets_a_job_end_and_takes_no_new_one(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        await host.control.assign(a_job("j1", b'{"run_s": 3}'))
        await host.holds_work()
        host.agent.stop()
        await asyncio.sleep(1)
        await host.control.assign(a_job("j2"))
        refused = await host.control.refused("j2")
        assert "shutting down" in refused.reason
        assert refused.at_once
        assert (await host.control.outcome("j1")).end == "completed"
        assert (await host.control.worker_is("w1", "gone")).reason == "the agent is shutting down"

    play(story)


def test_a_worker_that_control_still_wants_does_not_start_again_after_stop(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker())
        begun = now()
        host.agent.stop()
        await host.control.worker_is("w1", "stopping")
        await host.control.desire(a_worker())
        assert (await host.control.worker_is("w1", "gone")).reason == "the agent is shutting down"
        assert len(host.spawner.spawned) == 1
        assert now() - begun < 1

    play(story)


def test_stop_hands_back_what_does_not_end_in_time(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        stuck = b'{"run_s": 999, "ignore_cancel": true, "ignore_term": true}'
        await host.control.assign(a_job("j1", stuck))
        await host.holds_work()
        begun = now()
        host.agent.stop()
        refused = await host.control.refused("j1")
        assert "shutting down" in refused.reason
        assert refused.at_once
        assert now() - begun <= 5 + OTHERS_S + 2 + 3 + 1

    play(story)


def test_what_stop_cannot_deliver_is_on_disk(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.control.acks = False
        await host.control.assign(a_job("j1"))
        await host.control.outcome("j1")
        host.agent.stop()
        await host.control.worker_is("w1", "gone")
        assert [body.job for body in outbox_file.decode(host.disk.data)] == ["j1"]

    play(story)


def test_an_agent_that_is_cancelled_leaves_no_process(in_time, a_host, a_worker, a_job):
    async def story():
        host = a_host()
        running = asyncio.create_task(host.agent.run())
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 99}'))
        await host.holds_work()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert host.spawner.processes == []

    in_time(story())


# ---- workers


def test_desired_workers_are_started_once_and_stopped_when_no_longer_named(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker(), a_worker("w2"))
        await host.control.desire(a_worker(), a_worker("w2"))
        await host.control.desire(a_worker())
        await host.control.worker_is("w2", "gone")
        assert len(host.spawner.spawned) == 2
        assert host.spawner.spawned[1].signals == []
        setup = host.spawner.of("w1").sent[0]
        device = {"uuid": "cpu-0", "kind": "cpu", "name": "a CPU", "index": 0}
        assert (setup.kind, setup.fields["handler"], setup.fields["device"]) == (
            "setup",
            "h.py:handler",
            device,
        )

    play(story)


def test_a_worker_that_is_no_longer_wanted_ends_its_job_first(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 100}'))
        await host.holds_work()
        await host.control.desire()
        await host.control.worker_is("w1", "stopping")
        await host.control.assign(a_job("j2"))
        await host.control.refused("j2")
        assert (await host.control.outcome("j1")).end == "completed"
        await host.control.worker_is("w1", "gone")

    play(story)


def test_a_worker_that_is_wanted_again_while_it_drains_stays(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 10}'))
        await host.holds_work()
        await host.control.desire()
        await host.control.desire(a_worker())
        await host.control.outcome("j1")
        await host.control.assign(a_job("j2"))
        assert (await host.control.outcome("j2")).end == "completed"
        assert len(host.spawner.spawned) == 1

    play(story)


def test_a_worker_that_does_not_leave_is_killed(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker(endpoint="stubborn"))
        begun = now()
        await host.control.desire()
        await host.control.worker_is("w1", "gone")
        assert host.spawner.spawned[0].signals == ["TERM", "KILL"]
        assert 6 <= now() - begun < 6.1

    play(story, starts={"stubborn": Start(ignore_term=True)})


def test_a_worker_that_cannot_start_is_not_hammered_and_says_why(play, a_worker):
    async def story(host):
        await host.control.until(lambda: host.control.stream)
        begun = now()
        await host.control.desire(a_worker(endpoint="broken"))
        news = await host.control.worker_is("w1", "unhealthy")
        assert news.reason == (
            "crash loop: ImportError: no module named torch"
            " (the worker ended before it was ready: exited with status 1)"
        )
        assert news.log_tail[-1] == "ImportError: no module named torch"
        assert 1 <= now() - begun < 1.5
        await asyncio.sleep(600)
        assert 10 <= len(host.spawner.spawned) <= 17
        host.spawner.starts["broken"] = Start()
        await host.control.worker_is("w1", "ready")

    broken = Start(exit=1, log_tail=("Traceback", "ImportError: no module named torch"))
    play(story, starts={"broken": broken})


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (Start(spawn_error="the folder is not allowed"), "the folder is not allowed"),
        (Start(setup_error="KeyError: 'weights'"), "KeyError: 'weights'"),
        (Start(ready_s=None), "not ready within 60 s"),
        (Start(exit=3), "exited with status 3"),
    ],
)
def test_why_a_worker_did_not_start(play, a_worker, start, message):
    async def story(host):
        await host.control.until(lambda: host.control.stream)
        await host.control.desire(a_worker(endpoint="bad", start_timeout_s=60))
        await host.control.until(lambda: host.control.news("w1"))
        assert message in host.control.news("w1")[0].reason
        assert host.control.news("w1")[0].state == "starting"

    play(story, starts={"bad": start})


def test_a_device_that_is_not_here_is_no_start(play, a_worker):
    async def story(host):
        await host.control.until(lambda: host.control.stream)
        await host.control.desire(a_worker(devices=("GPU-9",)))
        await host.control.until(lambda: host.control.news("w1"))
        assert "GPU-9" in host.control.news("w1")[0].reason
        assert host.spawner.spawned == []

    play(story)


def test_progress_of_an_outage_arrives_as_its_last_value(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        script = {"run_s": 30, "progress": list(range(30))}
        await host.control.assign(a_job("j1", json.dumps(script).encode()))
        await host.control.until(lambda: host.control.about(Progress, "j1"))
        host.control.up = False
        host.control.stream.cut()
        before = len(host.control.about(Progress, "j1"))
        await asyncio.sleep(20)
        host.control.up = True
        await host.control.outcome("j1")
        shown = [json.loads(body.value) for body in host.control.about(Progress, "j1")]
        assert shown == sorted(shown)
        assert shown[-1] == 29
        assert len(shown) - before < 15

    play(story)
