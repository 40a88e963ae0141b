"""Attempts that wait for their worker while it runs another: their turn, their time, and how they end."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest
from msgspec.structs import replace

from stoker.agent.jobs.attempts.waiting import PATIENCE_S
from stoker.agent.workers.lifecycle.process_life import WAITING_MOST
from stoker.agent.workers.lifecycle.runs_ahead import AHEAD_MOST
from stoker.testing.fake_spawner import FakeProcess
from stoker.wire.messages import Outcome, Refused
from stoker.worker.frames import Frame

SHORT = b'{"run_s": 0.02}'
LONG = b'{"run_s": 60}'


def about(kind, job, **fields):
    return Frame(kind, {"job": job, "attempt": 1, **fields})


def sent(process, kind="run"):
    return [frame.job for frame in process.sent if frame.kind == kind]


def begun(process):
    """The jobs that its handler has been given, in order."""
    return [frame.job for frame in process.begun]


@pytest.fixture(autouse=True)
def _notes_what_begins(monkeypatch):
    run = FakeProcess._run

    def noted(self, frame):
        self.begun = [*getattr(self, "begun", ()), frame]
        run(self, frame)

    monkeypatch.setattr(FakeProcess, "begun", (), raising=False)
    monkeypatch.setattr(FakeProcess, "_run", noted)


def test_each_has_its_turn_and_its_own_time(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(*(a_job(f"j{n}", SHORT) for n in range(6)))
        for n in range(6):
            outcome = await host.control.outcome(f"j{n}")
            assert outcome.end == "completed"
            assert 19 <= outcome.execution_ms <= 22, "what it waited is not its time"
            assert 20 * n - 1 <= outcome.wait_ms <= 23 * n + 1
        assert begun(host.spawner.of("w1")) == [f"j{n}" for n in range(6)]
        assert not host.control.bodies(Refused)

    play(story)


def no_descriptors(process, monkeypatch, *jobs, ahead_only):
    """The runs of these jobs cannot be sent."""
    send = process.send

    def fails(frame):
        if frame.kind == "run" and frame.job in jobs and ("ahead" in frame.fields or not ahead_only):
            raise OSError(errno.EMFILE, "Too many open files")
        send(frame)

    monkeypatch.setattr(process, "send", fails)


def test_one_that_cannot_be_sent_ahead_is_sent_in_its_turn(play, a_worker, a_job, monkeypatch):
    async def story(host):
        await host.control.ready(a_worker())
        process = host.spawner.of("w1")
        no_descriptors(process, monkeypatch, "j1", "j4", ahead_only=True)
        await host.control.assign(*(a_job(f"j{n}", SHORT) for n in range(6)))
        for n in range(6):
            assert (await host.control.outcome(f"j{n}")).end == "completed"
        assert begun(process) == [f"j{n}" for n in range(6)], "nothing overtakes it"
        assert not host.control.bodies(Refused)
        assert (len(host.control.hellos), host.spawner.spawned) == (1, [process])

    play(story)


def test_one_that_cannot_be_sent_in_its_turn_either_is_given_back(play, a_worker, a_job, monkeypatch):
    async def story(host):
        await host.control.ready(a_worker())
        process = host.spawner.of("w1")
        no_descriptors(process, monkeypatch, "j1", ahead_only=False)
        await host.control.assign(*(a_job(f"j{n}", SHORT) for n in range(4)))
        for n in (0, 2, 3):
            assert (await host.control.outcome(f"j{n}")).end == "completed"
        (refused,) = host.control.bodies(Refused)
        assert (refused.job, refused.reason) == ("j1", "its input could not be sent: Too many open files")
        assert begun(process) == ["j0", "j2", "j3"]
        assert (len(host.control.hellos), host.spawner.spawned) == (1, [process])

    play(story)


def test_the_first_of_them_lie_in_the_workers_socket(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(*(a_job(f"j{n}", SHORT) for n in range(6)))
        await host.holds_work()
        process = host.spawner.of("w1")
        assert sent(process) == [f"j{n}" for n in range(1 + AHEAD_MOST)]
        assert begun(process) == ["j0"]
        assert [frame.fields.get("ahead") for frame in process.sent if frame.kind == "run"] == [
            None,
            True,
            True,
        ]
        await host.control.outcome("j0")
        assert len(sent(process)) == 2 + AHEAD_MOST
        await host.control.outcome("j5")
        assert len(sent(process)) == 6, "each once"

    play(story)


def test_what_waits_behind_a_long_job_is_handed_back_uncounted(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("long", LONG), *(a_job(f"j{n}", SHORT) for n in range(4)))
        began = asyncio.get_running_loop().time()
        for n in range(4):
            refused = await host.control.refused(f"j{n}")
            assert refused.at_once
            assert "takes longer than 50 ms" in refused.reason
        assert asyncio.get_running_loop().time() - began < PATIENCE_S + 0.03
        assert (await host.control.outcome("long")).end == "completed"
        assert begun(host.spawner.of("w1")) == ["long"], "what lay in the socket never runs"
        await host.control.assign(*(a_job(f"later{n}", SHORT) for n in range(4)))
        for n in range(4):
            assert (await host.control.outcome(f"later{n}")).end == "completed"

    play(story)


def test_a_long_one_in_the_middle_hands_back_those_behind_it(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        jobs = [a_job("j0", SHORT), a_job("long", LONG), a_job("j1", SHORT), a_job("j2", SHORT)]
        await host.control.assign(*jobs)
        assert (await host.control.outcome("j0")).end == "completed"
        began = asyncio.get_running_loop().time()
        await host.control.refused("j2")
        assert (await host.control.refused("j1")).at_once
        assert asyncio.get_running_loop().time() - began < PATIENCE_S + 0.005
        assert (await host.control.outcome("long")).execution_ms >= 59_990
        assert begun(host.spawner.of("w1")) == ["j0", "long"]

    play(story)


@pytest.mark.parametrize("which", [1, 2, 4])
def test_a_cancel_of_one_that_waits_needs_no_ladder(play, a_worker, a_job, which):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(*(a_job(f"j{n}", SHORT) for n in range(6)))
        await host.holds_work()
        await host.control.cancel(f"j{which}")
        outcome = await host.control.outcome(f"j{which}")
        assert (outcome.end, outcome.execution_ms) == ("cancelled", 0)
        for n in {*range(6)} - {which}:
            assert (await host.control.outcome(f"j{n}")).end == "completed"
        process = host.spawner.of("w1")
        assert begun(process) == [f"j{n}" for n in range(6) if n != which]
        assert sent(process, "cancel") == []
        assert process.signals == []

    play(story)


def test_a_cancel_of_one_that_its_worker_has_begun_reaches_its_handler(play, a_worker, a_job):
    """The end of the one before is on its way, and held up."""

    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j0", SHORT), a_job("j1", LONG), a_job("j2", SHORT))
        await host.holds_work()
        process = host.spawner.of("w1")
        process.pause()
        await host.until(lambda: begun(process) == ["j0", "j1"])
        await host.control.cancel("j1")
        await asyncio.sleep(0.01)
        assert not host.control.about(Outcome, "j1")
        process.resume()
        assert (await host.control.outcome("j0")).end == "completed"
        assert (await host.control.outcome("j1")).end == "cancelled"
        assert sent(process, "cancel") == ["j1"]

    play(story)


def test_a_death_counts_for_the_one_that_ran(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(
            a_job("bad", b'{"run_s": 0.01, "exit": -11}'), *(a_job(f"j{n}") for n in range(4))
        )
        lost = await host.control.outcome("bad")
        assert (lost.end, lost.retryable) == ("lost", True)
        for n in range(4):
            assert (await host.control.refused(f"j{n}")).at_once
        assert not host.control.about(Outcome, "j0")

    play(story)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_a_death_between_two_jobs_counts_for_none(play, a_worker, a_job, known, large):
    """The end of the one before is `known` before the process dies, or is read of the dead one. A large input
    is sent in its turn."""

    async def story(host):
        await host.control.ready(a_worker())
        second = json.dumps("x" * 40_000).encode() if large and not known else SHORT
        await host.control.assign(a_job("j0", SHORT), a_job("j1", second), a_job("j2"), a_job("j3"))
        await host.holds_work()
        process = host.spawner.of("w1")
        process.emit(about("done", "j0", files=0, metrics={}, has_output=False))
        if known:
            await host.control.outcome("j0")
        process.exit(-11)
        for n in range(1, 4):
            await host.control.refused(f"j{n}")
            assert not host.control.about(Outcome, f"j{n}")
        assert (await host.control.outcome("j0")).end == "completed"
        assert begun(process) == ["j0"]

    play(story)


def test_what_a_process_had_ended_before_its_death_is_kept(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(
            a_job("j0", SHORT), a_job("j1"), a_job("j2", b'{"run_s": 0.001, "exit": -11}'), a_job("j3")
        )
        await host.holds_work()
        process = host.spawner.of("w1")
        process.pause()
        for job in ("j0", "j1"):
            assert (await host.control.outcome(job)).end == "completed"
        assert (await host.control.outcome("j2")).end == "lost", "it ran"
        await host.control.refused("j3")
        assert begun(process) == ["j0", "j1", "j2"]

    play(story)


def test_a_process_that_has_ended_is_given_nothing(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.spawner.of("w1").alive = False
        await host.control.assign(a_job("j0"))
        assert "has ended" in (await host.control.refused("j0")).reason

    play(story)


def test_a_hello_lists_what_waits(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(*(a_job(f"j{n}", SHORT) for n in range(4)))
        await host.holds_work()
        held = [(one.job, one.phase) for one in host.agent.attempts.held()]
        assert held == [("j0", "running"), *((f"j{n}", "waiting") for n in range(1, 4))]
        await host.control.outcome("j0")
        assert [one.phase for one in host.agent.attempts.held()] == ["running", "waiting", "waiting"]

    play(story)


def test_what_control_does_not_want_any_more_is_dropped_and_the_others_go_on(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(*(a_job(f"j{n}", SHORT) for n in range(5)))
        await host.holds_work()
        await host.control.assign(a_job("j1", SHORT, attempt=2))
        for n in (0, 2, 3, 4):
            assert (await host.control.outcome(f"j{n}")).end == "completed"
        assert (await host.control.outcome("j1", 2)).end == "completed"
        assert not host.control.about(Outcome, "j1", 1)

    play(story)


@pytest.mark.parametrize("how", ["drained", "retires", "ill", "unwanted"])
def test_a_worker_that_takes_nothing_new_gives_them_back(play, a_worker, a_job, how):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(
            a_job("j0", b'{"run_s": 0.03}'), *(a_job(f"j{n}", SHORT) for n in range(1, 5))
        )
        await host.holds_work()
        await asyncio.sleep(0.005)
        process = host.spawner.of("w1")
        if how == "drained":
            host.agent.stop()
        elif how == "retires":
            process.emit(Frame("retire", {"reason": "worn"}))
        elif how == "ill":
            host.agent.attempts.lose(host.agent.workers.by_name["w1"], "the device is ill")
        else:
            await host.control.desire()
        for n in range(1, 5):
            assert (await host.control.refused(f"j{n}")).at_once
        end = (await host.control.outcome("j0")).end
        assert end == ("lost" if how == "ill" else "completed")
        assert begun(process) == ["j0"]

    play(story)


def test_the_stop_of_the_one_that_runs_hands_back_the_others(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        stubborn = json.dumps({"run_s": 60, "ignore_cancel": True}).encode()
        await host.control.assign(a_job("j0", stubborn), a_job("j1", SHORT), a_job("j2", SHORT))
        await host.holds_work()
        await host.control.cancel("j0")
        assert (await host.control.refused("j1")).reason == "the job before it is being stopped"
        await host.control.refused("j2")
        assert (await host.control.outcome("j0")).end == "cancelled"
        assert begun(host.spawner.spawned[0]) == ["j0"]

    play(story)


def test_the_ttl_of_one_that_waits_ends_it(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j0", SHORT), a_job("j1", SHORT), a_job("j2", SHORT, ttl_s=0.01))
        outcome = await host.control.outcome("j2")
        assert (outcome.end, outcome.execution_ms) == ("timed_out", 0)
        assert (await host.control.outcome("j1")).end == "completed"
        assert begun(host.spawner.of("w1")) == ["j0", "j1"]

    play(story)


def test_no_more_wait_than_may(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(*(a_job(f"j{n:02}", SHORT) for n in range(WAITING_MOST + 2)))
        assert "busy" in (await host.control.refused(f"j{WAITING_MOST + 1:02}")).reason
        assert (await host.control.outcome("j08")).end == "completed"

    play(story)


@pytest.mark.parametrize("fields", [{"kind": "protocol", "command": ("python",)}, {"concurrency": 2}])
def test_others_let_nothing_wait(play, a_worker, a_job, fields):
    async def story(host):
        spec = a_worker(**fields)
        await host.control.ready(spec)
        await host.control.assign(*(a_job(f"j{n}", LONG) for n in range(spec.concurrency + 1)))
        assert "busy" in (await host.control.refused(f"j{spec.concurrency}")).reason
        assert sent(host.spawner.of("w1")) == [f"j{n}" for n in range(spec.concurrency)]

    play(story, settings={"grace_s": 0.0})


def test_what_would_reach_the_worker_too_early_is_sent_in_its_turn(play, a_worker, a_job):
    """A secret, a large input, an input that is fetched, and whatever comes behind one of these."""

    async def story(host):
        own = replace(a_job("x").grant, access_secret="s3cret")
        grant = replace(a_job("b2").grant, prefix="e1/b2/")
        ref = await host.objects.put_bytes(grant, "e1/b2/input.json", SHORT, "application/json")
        fetched = {"input": None, "input_ref": ref}
        kinds = [{"files_grant": own}, {"input": json.dumps("x" * 40_000).encode()}, fetched]
        for n, fields in enumerate(kinds):
            await host.control.ready(a_worker(f"w{n}"))
            first, then = a_job(f"a{n}", SHORT, on=f"w{n}"), a_job(f"c{n}", SHORT, on=f"w{n}")
            await host.control.assign(first, replace(a_job(f"b{n}", SHORT, on=f"w{n}"), **fields), then)
            await host.holds_work()
            assert sent(host.spawner.of(f"w{n}")) == [f"a{n}"]
            assert (await host.control.outcome(f"c{n}")).end == "completed"
            assert sent(host.spawner.of(f"w{n}")) == [f"{name}{n}" for name in "abc"]

    play(story)


def test_where_jobs_print_each_is_sent_in_its_turn(play, a_worker, a_job):
    """Otherwise nobody could tell whose line it is; the first one that prints may be too late."""

    async def story(host):
        await host.control.ready(a_worker())
        loud = [a_job(f"j{n}", json.dumps({"run_s": 0.01, "log": [f"of j{n}"]}).encode()) for n in range(6)]
        await host.control.assign(*loud)
        logs = [(await host.control.outcome(f"j{n}")).log for n in range(6)]
        assert all(f"of j{n}" in log for n, log in enumerate(logs)), "no line is lost"
        assert logs[2:] == [(f"of j{n}",) for n in range(2, 6)]
        assert begun(host.spawner.of("w1")) == [f"j{n}" for n in range(6)]

    play(story)


def test_a_job_that_never_ran_has_no_lines_of_the_one_before(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        loud = a_job("j0", b'{"run_s": 0.01, "log": ["of j0"]}')
        grant = replace(a_job("j1").grant, prefix="e1/j1/")
        ref = await host.objects.put_bytes(grant, "e1/j1/input.json", SHORT, "application/json")
        host.objects.blobs.clear()
        await host.control.assign(loud, replace(a_job("j1"), input=None, input_ref=ref))
        assert (await host.control.outcome("j0")).log == ("of j0",)
        never_ran = await host.control.outcome("j1")
        assert (never_ran.end, never_ran.log) == ("failed", ())

    play(story)


def test_who_speaks_before_its_turn_breaks_the_protocol(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j0", SHORT), a_job("j1", SHORT))
        await host.holds_work()
        host.spawner.of("w1").emit(about("done", "j1", files=0, metrics={}, has_output=False))
        outcome = await host.control.outcome("j0")
        assert (outcome.end, outcome.retryable) == ("lost", True)
        assert "before its turn" in outcome.error
        assert (await host.control.refused("j1")).at_once

    play(story)


def test_a_worker_with_a_limit_of_jobs_runs_none_too_many(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(max_jobs=2))
        await host.control.assign(*(a_job(f"j{n}", SHORT) for n in range(4)))
        await host.control.outcome("j1")
        assert (await host.control.refused("j2")).at_once
        assert sent(host.spawner.spawned[0]) == ["j0", "j1"]

    play(story)
