"""Jobs that wait at their worker until its handler takes them, and workers that ask to be replaced."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from stoker.wire.messages import Outcome, WorkerState
from stoker.worker.frames import Frame

SLOW = b'{"run_s": 60}'


def about(kind, job, **fields):
    return Frame(kind, {"job": job, "attempt": 1, **fields})


def test_its_time_begins_when_the_handler_has_it(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(kind="protocol", command=("python",)))
        await host.control.assign(a_job("j1", b'{"run_s": 4}', execution_timeout_ms=5000))
        await host.holds_work()
        await asyncio.sleep(3.0)
        host.spawner.of("w1").emit(about("begun", "j1"))
        outcome = await host.control.outcome("j1")
        assert outcome.end == "completed"
        assert 900 <= outcome.execution_ms <= 1100
        assert 2900 <= outcome.wait_ms <= 3100

    play(story)


@pytest.mark.parametrize("word", ["begun", "returned"])
def test_a_python_worker_neither_prolongs_its_time_nor_hands_back_uncounted(play, a_worker, a_job, word):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", SLOW))
        await host.holds_work()
        host.spawner.of("w1").emit(about(word, "j1", reason="I would rather not"))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.retryable) == ("lost", True), "a failure of its worker, and counted"
        assert f"it sent '{word}', which no worker may send" in outcome.error

    play(story)


def test_what_was_not_begun_is_handed_back_uncounted(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(kind="protocol", command=("python",), concurrency=2))
        await host.control.assign(a_job("j1", SLOW), a_job("j2", SLOW))
        await host.holds_work()
        await asyncio.sleep(1.0)
        process = host.spawner.of("w1")
        process.emit(Frame("retire", {"reason": "a fresh worker is wanted"}))
        process.emit(about("returned", "j2", reason="a fresh worker is wanted"))
        assert (await host.control.refused("j2")).reason == "a fresh worker is wanted"
        outcome = await host.control.outcome("j1")
        assert outcome.end == "completed", "it runs to its end on the old process"
        await host.control.until(lambda: host.control.news("w1")[-1].state == "ready")
        assert len(host.spawner.spawned) == 2

    play(story)


def test_control_knows_that_it_goes_before_its_slot_is_free(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", SLOW))
        await host.holds_work()
        await asyncio.sleep(1.0)
        process = host.spawner.of("w1")
        process.emit(Frame("retire", {"reason": "refresh"}))
        process.emit(about("done", "j1", files=0, metrics={}, has_output=False))
        await host.control.outcome("j1")
        reported = [b for r in host.control.reports if isinstance(b := r.body, WorkerState | Outcome)]
        assert [type(body).__name__ for body in reported[-2:]] == ["WorkerState", "Outcome"]
        assert (reported[-2].state, reported[-2].reason) == ("stopping", "refresh")
        await host.control.until(lambda: host.control.news("w1")[-1].state == "ready")

    play(story)


def test_one_that_had_no_job_cannot_ask_for_another(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.spawner.of("w1").emit(Frame("retire", {"reason": "again"}))
        await host.control.assign(a_job("j1"))
        assert (await host.control.outcome("j1")).end == "completed"
        assert len(host.spawner.spawned) == 1

    play(story)


def test_what_came_alongside_an_error_is_kept(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", SLOW))
        await host.holds_work()
        await asyncio.sleep(1.0)
        failed = about("failed", "j1", error="bad thing", retryable=False)
        host.spawner.of("w1").emit(Frame("failed", failed.fields, b'{"x": 1}'))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.error, json.loads(outcome.output)) == ("failed", "bad thing", {"x": 1})

    play(story)


def test_every_worker_gets_the_callers_bucket(play, a_worker, a_job):
    """With the path and the region that the caller named: what attempts are kept apart by is the agent's."""
    bucket = {
        "accessId": "id",
        "accessSecret": "secret",
        "bucketName": "bucket",
        "endpointUrl": "http://s3",
    }

    async def story(host):
        program = a_worker("w2", kind="protocol", command=("python",))
        await host.control.ready(a_worker("w1"), program)
        sent = []
        for job, worker, path in (("j1", "w1", "a/b/"), ("j2", "w2", "a/b/"), ("j3", "w2", "")):
            region = "eu" if path else ""
            own = replace(a_job("j").grant, prefix=f"{path}e1/{job}/1/", region=region)
            await host.control.assign(a_job(job, on=worker, files_grant=own))
            await host.control.outcome(job)
            sent.append(host.spawner.of(worker).sent[-1].fields.get("more"))
        below = {"s3Config": bucket | {"objectPath": "a/b", "region": "eu"}}
        assert sent == [below, below, {"s3Config": bucket}]

    play(story)


def test_every_worker_gets_its_place_in_the_callers_trace(play, a_worker, a_job):
    async def story(host):
        program = a_worker("w2", kind="protocol", command=("python",))
        await host.control.ready(a_worker("w1"), program)
        sent = []
        for job, worker, traceparent in (("j1", "w1", "00-a"), ("j2", "w2", "00-b"), ("j3", "w1", "")):
            await host.control.assign(a_job(job, on=worker, traceparent=traceparent))
            await host.control.outcome(job)
            sent.append(host.spawner.of(worker).sent[-1].fields.get("more"))
        assert sent == [{"traceparent": "00-a"}, {"traceparent": "00-b"}, None]

    play(story)
