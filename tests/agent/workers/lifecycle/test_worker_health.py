"""Workers that are replaced or do not come up: what becomes of their jobs, and what is said."""

from __future__ import annotations

import asyncio
import errno

from stoker.agent.host.process_tree.footprint import Footprint
from stoker.testing.fake_spawner import FakeProcess, Start
from stoker.wire.messages import Outcome, Refused, Usage, WorkerState
from stoker.worker.frames import Frame

SLOW = b'{"run_s": 60}'
MIB = 1 << 20


def about(kind, job, **fields):
    return Frame(kind, {"job": job, "attempt": 1, **fields})


def now():
    return asyncio.get_running_loop().time()


def states_and_ends(host):
    """What control heard of workers and ends, in order."""
    kinds = WorkerState | Outcome | Refused
    return [
        (body.state, body.reason) if isinstance(body, WorkerState) else type(body).__name__
        for body in host.control.bodies(kinds)
    ]


def test_a_worker_that_cannot_be_sent_its_setup_is_started_again(play, a_worker, a_job, monkeypatch):
    send, failed = FakeProcess.send, []

    def fails_once(self, frame):
        if not failed:
            failed.append(self)
            raise OSError(errno.EMFILE, "Too many open files")
        send(self, frame)

    monkeypatch.setattr(FakeProcess, "send", fails_once)

    async def story(host):
        failed.clear()
        await host.control.ready(a_worker())
        assert failed[0].signals == ["KILL"]
        reasons = [news.reason for news in host.control.news("w1")]
        assert "its setup could not be sent: Too many open files" in reasons
        await host.control.assign(a_job("j0"))
        assert (await host.control.outcome("j0")).end == "completed"

    play(story)


# ---- after so many jobs


def test_after_its_jobs_a_worker_is_replaced_and_no_job_is_lost(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(max_jobs=3))
        for n in range(7):
            await host.control.worker_is("w1", "ready")
            await host.control.assign(a_job(f"j{n}"))
            assert (await host.control.outcome(f"j{n}")).end == "completed"
        await host.control.worker_is("w1", "ready")
        assert len(host.spawner.spawned) == 3
        assert [kind for kind in states_and_ends(host) if kind == "Refused"] == []
        why = "it is replaced after 3 jobs (maxJobs)"
        replaced = ["Outcome", "Outcome", ("stopping", why), "Outcome", ("starting", why), ("ready", "")]
        assert states_and_ends(host)[1:7] == replaced, "said before the slot is free"

    play(story)


def test_alongside_the_last_job_the_others_end_first(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(max_jobs=1, concurrency=2))
        await host.control.assign(a_job("slow", b'{"run_s": 20}'), a_job("quick", b'{"run_s": 1}'))
        await host.control.outcome("quick")
        await host.control.assign(a_job("late"))
        refused = await host.control.refused("late")
        assert "is stopping" in refused.reason
        assert refused.at_once, "control knows that it is not ready"
        assert len(host.spawner.spawned) == 1
        assert (await host.control.outcome("slow")).end == "completed"
        await host.control.worker_is("w1", "ready")
        assert len(host.spawner.spawned) == 2

    play(story)


def test_what_is_replaced_is_replaced_though_it_is_wanted_again_meanwhile(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(max_jobs=1, concurrency=2))
        await host.control.assign(a_job("slow", b'{"run_s": 20}'), a_job("quick", b'{"run_s": 1}'))
        await host.control.outcome("quick")
        await host.control.desire()
        await host.control.desire(a_worker(max_jobs=1, concurrency=2))
        await host.control.outcome("slow")
        await host.control.worker_is("w1", "ready")
        assert len(host.spawner.spawned) == 2

    play(story)


# ---- when it has grown


class Memory:
    """What the agent's looks at its workers find. `looks` counts them."""

    def __init__(self):
        self.held, self.looks = {}, 0

    async def measure(self, pid, devices, shared):
        self.looks += 1
        await asyncio.sleep(0.001)
        return Footprint(self.held.get(pid))


def test_a_worker_that_has_grown_is_replaced_when_its_jobs_have_ended(play, a_worker, a_job):
    memory = Memory()

    async def story(host):
        host.measure = memory.measure
        await host.control.ready(a_worker(max_growth_bytes=100 * MIB, concurrency=2))
        (first,) = host.spawner.spawned
        await asyncio.sleep(5)
        assert memory.looks == 1
        memory.held[first.pid] = 500 * MIB
        await host.control.assign(a_job("j1"))
        await host.control.outcome("j1")
        await asyncio.sleep(5)
        assert memory.looks == 2

        memory.held[first.pid] = 700 * MIB
        await host.control.assign(a_job("slow", b'{"run_s": 20}'), a_job("quick", b'{"run_s": 1}'))
        await host.control.outcome("quick")
        news = await host.control.worker_is("w1", "stopping")
        assert news.reason == (
            "it is replaced: its memory has grown by 200 MiB since it was ready, of 100 MiB that are allowed"
            " (maxMemoryGrowthMb)"
        )
        assert (await host.control.outcome("slow")).end == "completed"
        await host.control.worker_is("w1", "ready")
        assert len(host.spawner.spawned) == 2
        assert [kind for kind in states_and_ends(host) if kind == "Refused"] == []

    play(story)


def test_looks_are_few_and_none_where_nothing_is_limited(play, a_worker, a_job):
    memory = Memory()

    async def story(host):
        host.measure = memory.measure
        await host.control.ready(a_worker("free"), a_worker("w1", max_growth_bytes=MIB))
        for n in range(200):
            on = ("free", "w1")[n % 2]
            await host.control.assign(a_job(f"j{n}", on=on))
            await host.control.outcome(f"j{n}")
        took = now()
        await asyncio.sleep(5)
        assert 2 <= memory.looks <= 3 + took

    play(story)


# ---- a lost context


def lose(process, job, why="its CUDA context is lost: CUDA error"):
    process.emit(about("retire", job, reason=why, lost=True))
    process.emit(about("failed", job, error="CUDA error", retryable=False))


def test_with_its_context_the_worker_goes_and_its_neighbours_are_handed_back(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=3))
        await host.control.assign(a_job("a", SLOW), a_job("b", SLOW), a_job("c", SLOW))
        await host.holds_work()
        await asyncio.sleep(1.0)
        process = host.spawner.of("w1")
        lose(process, "b")
        for neighbour in ("a", "c"):
            refused = await host.control.refused(neighbour)
            assert refused.reason == "its CUDA context is lost: CUDA error"
        outcome = await host.control.outcome("b")
        assert (outcome.end, outcome.retryable) == ("failed", True), "it may not have been its doing"
        await host.control.worker_is("w1", "ready")
        assert process.signals == ["TERM"]
        assert len(host.spawner.spawned) == 2
        assert host.control.about(Outcome, "a") == host.control.about(Outcome, "c") == []

    play(story)


def test_who_was_alone_has_lost_it_itself(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("a", SLOW))
        await host.holds_work()
        await asyncio.sleep(1.0)
        lose(host.spawner.of("w1"), "a")
        outcome = await host.control.outcome("a")
        assert (outcome.end, outcome.retryable) == ("failed", False)

    play(story)


def test_one_that_loses_every_first_job_is_unhealthy_and_served_ones_are_not(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        for n in range(6):
            await host.control.worker_is("w1", "ready")
            await host.control.assign(a_job(f"good{n}"))
            await host.control.outcome(f"good{n}")
            await host.control.assign(a_job(f"bad{n}", SLOW))
            await host.until(lambda n=n: host.agent.attempts.held())
            await asyncio.sleep(1.0)
            lose(host.spawner.of("w1"), f"bad{n}")
            await host.control.outcome(f"bad{n}")
        assert "unhealthy" not in [news.state for news in host.control.news("w1")]
        for n in range(3):
            await host.control.worker_is("w1", "ready")
            await host.control.assign(a_job(f"first{n}", SLOW))
            await host.until(lambda n=n: host.agent.attempts.held())
            await asyncio.sleep(1.0)
            lose(host.spawner.of("w1"), f"first{n}")
            await host.control.outcome(f"first{n}")
        news = await host.control.worker_is("w1", "unhealthy")
        assert news.reason == "crash loop: its CUDA context is lost: CUDA error"

    play(story)


def test_a_loss_that_names_no_job_is_no_frame(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("a", SLOW))
        await host.holds_work()
        await asyncio.sleep(1.0)
        host.spawner.of("w1").emit(Frame("retire", {"reason": "x", "lost": True}))
        assert (await host.control.outcome("a")).end == "lost"

    play(story)


# ---- that do not come up


def test_one_that_never_is_ready_is_killed_at_its_deadline_and_becomes_unhealthy(play, a_worker):
    async def story(host):
        await host.control.until(lambda: host.control.stream)
        begun = now()
        await host.control.desire(a_worker(endpoint="stuck", start_timeout_s=10))
        news = await host.control.worker_is("w1", "unhealthy")
        assert news.reason == "crash loop: the worker was not ready within 10 s"
        assert news.log_tail == ("loading",)
        assert 21 <= now() - begun < 21.5, "two deadlines, and a wait of 1 s"
        assert [process.signals for process in host.spawner.spawned] == [["KILL"]] * 2
        host.spawner.starts["stuck"] = Start()
        await host.control.worker_is("w1", "ready")

    play(story, starts={"stuck": Start(ready_s=None, log_tail=("loading",))})


def test_a_fitness_check_that_fails_is_named_and_no_job_is_touched(play, a_worker, a_job):
    unfit = Start(setup_error="fitness check cuda: OSError: no driver\nTraceback …", log_tail=("a line",))

    async def story(host):
        await host.control.until(lambda: host.control.stream)
        await host.control.desire(a_worker(endpoint="unfit", kind="protocol", command=("x",)))
        news = await host.control.worker_is("w1", "unhealthy")
        assert news.reason == "crash loop: fitness check cuda: OSError: no driver"
        await host.control.assign(a_job("j1"))
        assert (await host.control.refused("j1")).reason == "worker w1 is unhealthy"
        assert host.control.bodies(Outcome) == []
        host.spawner.starts["unfit"] = Start()
        await host.control.worker_is("w1", "ready")
        await host.control.assign(a_job("j1", attempt=2))
        assert (await host.control.outcome("j1", 2)).end == "completed"

    play(story, starts={"unfit": unfit})


def test_one_that_dies_of_its_first_jobs_is_unhealthy_until_one_goes_well(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        for n in range(3):
            await host.control.worker_is("w1", "ready")
            await host.control.assign(a_job(f"j{n}", b'{"exit": -11}'))
            assert (await host.control.outcome(f"j{n}")).end == "lost"
        await host.control.worker_is("w1", "unhealthy")
        await host.control.worker_is("w1", "ready")
        await host.control.assign(a_job("good"))
        await host.control.outcome("good")
        await host.control.assign(a_job("bad", b'{"exit": -11}'))
        await host.control.outcome("bad")
        await host.control.until(lambda: host.control.news("w1")[-2].state == "starting")
        assert host.control.news("w1")[-1].state == "ready", "at once, and well"

    play(story)


def test_jobs_that_kill_their_workers_hold_up_the_others_for_moments(play, a_worker, a_job):
    """Two in a row, each tried three times: a death says no more than the first of its job did."""

    async def story(host):
        await host.control.ready(a_worker())
        began = now()
        for attempt in (1, 2, 3):
            for name in ("p1", "p2"):
                await host.control.worker_is("w1", "ready")
                await host.control.assign(a_job(name, b'{"exit": -9}', attempt=attempt))
                assert (await host.control.outcome(name, attempt)).end == "lost"
        await host.control.worker_is("w1", "ready")
        assert now() - began < 6, "and not 0, 1, 2, 4, 8 and 16 s"
        assert "unhealthy" not in [news.state for news in host.control.news("w1")]
        await host.control.assign(a_job("good"))
        assert (await host.control.outcome("good")).end == "completed"

    play(story)


def test_a_replacement_after_good_work_makes_up_for_a_bad_start(play, a_worker, a_job):
    async def story(host):
        host.spawner.starts["e1"] = Start(exit=1)
        await host.control.until(lambda: host.control.stream)
        await host.control.desire(a_worker(max_jobs=1))
        await host.until(lambda: len(host.spawner.spawned) == 1)
        host.spawner.starts["e1"] = Start()
        await host.control.worker_is("w1", "ready")
        await host.control.assign(a_job("j1"))
        host.spawner.starts["e1"] = Start(exit=1)
        await host.control.outcome("j1")
        await host.until(lambda: len(host.spawner.spawned) == 4)
        assert "unhealthy" not in [news.state for news in host.control.news("w1")]
        await host.control.worker_is("w1", "unhealthy")
        host.spawner.starts["e1"] = Start()
        await host.control.worker_is("w1", "ready")

    play(story)


# ---- http workers


def test_an_http_worker_leaves_the_rotation_and_comes_back(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker(kind="http", command=("server",)))
        process = host.spawner.of("w1")
        process.emit(Frame("unfit", {"reason": "its health check answers 500"}))
        assert (await host.control.worker_is("w1", "unhealthy")).reason == "its health check answers 500"
        process.emit(Frame("fit"))
        await host.control.worker_is("w1", "ready")
        ready = ("ready", "")
        assert states_and_ends(host) == [ready, ("unhealthy", "its health check answers 500"), ready]
        assert len(host.spawner.spawned) == 1

    play(story)


def test_an_http_worker_that_is_ready_counts_as_running(play, a_worker):
    async def story(host):
        await host.control.ready(a_worker(kind="http", command=("server",)))
        await asyncio.sleep(200.0)
        assert {body.state for body in host.control.bodies(Usage)} <= {"starting", "running"}
        assert any(body.state == "running" for body in host.control.bodies(Usage))

    play(story)
