"""A job's own bucket is tried before the work: a refusal ends the job, and nothing else delays it long."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from stoker.outbound.errors import ObjectStoreDown, ObjectStoreRefused

SHORT = b'{"run_s": 0.01}'


def own_bucket(a_job, job="j1"):
    return replace(a_job(job).grant, bucket="own", access_id="id", access_secret="secret")


def runs(host):
    return [frame.fields["job"] for frame in host.spawner.of("w1").sent if frame.kind == "run"]


def test_a_bucket_that_refuses_ends_the_job_before_the_work(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.refusal = ObjectStoreRefused("writing was refused: check access id and secret")
        await host.control.assign(a_job("j1", SHORT, files_grant=own_bucket(a_job)))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.retryable, outcome.execution_ms) == ("failed", False, 0)
        assert outcome.error == (
            "the bucket of s3Config cannot be used: writing was refused: check access id and secret"
        )
        assert runs(host) == []
        await host.control.assign(a_job("j2", SHORT))
        assert (await host.control.outcome("j2")).end == "completed", "its slot is free"
        assert host.objects.calls == ["try own"]

    play(story)


def test_a_bucket_that_refuses_ends_the_job_while_its_input_is_waited_for(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        grant = replace(a_job("j1").grant, prefix="e1/j1/")
        ref = await host.objects.put_bytes(grant, "e1/j1/input.json", SHORT, "application/json")
        host.objects.down = True
        host.objects.refusal = ObjectStoreRefused("no")
        job = replace(a_job("j1", None, files_grant=own_bucket(a_job)), input_ref=ref)
        await host.control.assign(job)
        assert (await host.control.outcome("j1")).error == "the bucket of s3Config cannot be used: no"

    play(story)


def test_an_input_and_a_bucket_are_waited_for_at_once(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        grant = replace(a_job("j1").grant, prefix="e1/j1/")
        ref = await host.objects.put_bytes(grant, "e1/j1/input.json", SHORT, "application/json")
        host.objects.delay = lambda: 1.0
        await host.control.assign(replace(a_job("j1", None, files_grant=own_bucket(a_job)), input_ref=ref))
        outcome = await host.control.outcome("j1")
        assert outcome.end == "completed"
        assert 1000 <= outcome.wait_ms < 1900, "one second for both"

    play(story)


def test_an_unforeseen_error_of_the_trial_is_said(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.refusal = ObjectStoreDown("it should not raise this")
        await host.control.assign(a_job("j1", SHORT, files_grant=own_bucket(a_job)))
        assert "it should not raise this" in (await host.control.outcome("j1")).error

    play(story)


def test_a_job_that_is_stopped_while_its_bucket_is_tried_leaves_its_slot(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.delay = lambda: 60.0
        await host.control.assign(a_job("j1", SHORT, files_grant=own_bucket(a_job)))
        await asyncio.sleep(1.0)
        await host.control.cancel("j1")
        assert (await host.control.outcome("j1")).end == "cancelled"
        assert runs(host) == []
        await host.control.assign(a_job("j2", SHORT))
        assert (await host.control.outcome("j2")).end == "completed"

    play(story)
