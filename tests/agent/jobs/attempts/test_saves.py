"""Stories of handlers that save: a save follows its chunks, and a later attempt goes on from it."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from msgspec.structs import replace

from stoker.agent.jobs.attempts.save_pace import BURST_BYTES, BYTES_PER_S
from stoker.outbound.errors import ObjectDamaged, ObjectMissing, ObjectStoreRefused
from stoker.wire.messages import Chunk, Outcome, Ref, Save, Saved
from stoker.worker.frames import Frame
from stoker.worker.job.saves import packed, unpacked


def script(**steps):
    return json.dumps(steps).encode()


def told(host, name="j1"):
    """The chunks and saves in the order in which control heard of them."""
    return [
        ("chunk", body.n) if isinstance(body, Chunk) else ("save", body.upto)
        for body in (report.body for report in host.control.reports)
        if isinstance(body, Chunk | Save) and body.job == name
    ]


SAVES = {"chunks": ["a", "b", "c", "d"], "saves": 2, "output": {}, "run_s": 1}


@pytest.mark.parametrize("bytes_each", [0, 100_000])
def test_a_save_follows_the_chunks_that_it_covers(play, a_worker, a_job, bytes_each):
    async def story(host):
        host.objects.delay = lambda: 0.7
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(**SAVES, save_bytes=bytes_each)))
        assert (await host.control.outcome("j1")).end == "completed"
        assert told(host) == [
            ("chunk", 0),
            ("chunk", 1),
            ("save", 2),
            ("chunk", 2),
            ("chunk", 3),
            ("save", 4),
        ]
        first, second = host.control.about(Save, "j1")
        assert (first.n, second.n) == (0, 1)
        state = first.state
        if bytes_each:
            assert first.ref.key == "e1/j1/1/save-0"
            assert (first.state, second.state) == (b"", b"")
            state = host.objects.blobs["bucket", first.ref.key]
        assert json.loads(unpacked(state)[0]) == ["a", "b"]

    play(story)


def test_an_attempt_goes_on_from_a_save(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        state = packed(b'["a", "b"]', {})
        assign = replace(a_job("j1", script(**SAVES)), attempt=2, saved=Saved(2, state))
        await host.control.assign(assign)
        outcome = await host.control.outcome("j1", 2)
        assert json.loads(outcome.output) == {"made": ["a", "b", "c", "d"]}
        assert told(host) == [("chunk", 2), ("chunk", 3), ("save", 4)]

    play(story)


def test_a_large_save_is_fetched_before_the_attempt_begins(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        body = packed(b'["a", "b"]' + b" " * 100_000, {})
        host.objects.blobs["bucket", "e1/j1/1/save-0"] = body
        ref = Ref("e1/j1/1/save-0", len(body), hashlib.sha256(body).hexdigest())
        await host.control.assign(replace(a_job("j1", script(**SAVES)), attempt=2, saved=Saved(2, b"", ref)))
        assert json.loads((await host.control.outcome("j1", 2)).output)["made"] == ["a", "b", "c", "d"]

    play(story)


@pytest.mark.parametrize(
    "error",
    [ObjectMissing("there is no such object"), ObjectDamaged("it was altered"), ObjectStoreRefused("403")],
)
def test_a_save_that_is_gone_for_good_is_named_so(play, a_worker, a_job, error):
    async def story(host):
        await host.control.ready(a_worker())
        ref = Ref("e1/j1/1/save-0", 100_000, hashlib.sha256(b"as saved").hexdigest())
        host.objects.fail(1, error)
        await host.control.assign(replace(a_job("j1", script(**SAVES)), attempt=2, saved=Saved(2, b"", ref)))
        outcome = await host.control.outcome("j1", 2)
        assert (outcome.end, outcome.retryable, outcome.save_gone) == ("failed", True, True)
        assert outcome.error.startswith("the save could not be fetched")

    play(story)


def test_a_save_names_the_image_that_made_it(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.spawner.processes[0].image_id = "sha256:9e10"
        for name, size in (("small", 0), ("large", 100_000)):
            await host.control.assign(a_job(name, script(**SAVES, save_bytes=size)))
            assert (await host.control.outcome(name)).end == "completed"
            assert {save.content for save in host.control.about(Save, name)} == {"image 9e10"}

    play(story)


@pytest.mark.parametrize(
    ("made_by", "runs", "goes_on"),
    [
        ("image 9e10", "sha256:9e10", True),
        ("image 9e10", "sha256:77aa", False),
        ("", "sha256:77aa", True),
        ("image 9e10", "", True),
    ],
)
def test_a_worker_goes_on_from_no_save_of_another_image(play, a_worker, a_job, made_by, runs, goes_on):
    async def story(host):
        await host.control.ready(a_worker())
        host.spawner.processes[0].image_id = runs
        saved = Saved(2, packed(b'["a", "b"]', {}), content=made_by)
        await host.control.assign(replace(a_job("j1", script(**SAVES)), attempt=2, saved=saved))
        outcome = await host.control.outcome("j1", 2)
        assert (outcome.end, outcome.save_gone) == (("completed", False) if goes_on else ("failed", True))
        if not goes_on:
            assert outcome.retryable
            assert outcome.error == "its save was made by image 9e10, and worker w1 runs image 77aa"
            assert told(host) == [], "nothing ran"

    play(story)


def test_a_save_is_delivered_though_its_worker_dies(play, a_worker, a_job):
    async def story(host):
        host.objects.delay = lambda: 0.5
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(**SAVES, save_bytes=100_000)))
        await host.control.until(lambda: host.control.about(Chunk, "j1"))
        await asyncio.sleep(0.45)  # the save is on its way to the store
        host.spawner.processes[0].exit(-9)
        outcome = await host.control.outcome("j1")
        assert outcome.end == "lost"
        assert [save.upto for save in host.control.about(Save, "j1")] == [2]
        assert isinstance(host.control.reports[-1].body, Outcome)

    play(story)


def test_a_control_that_takes_no_saves_is_sent_none(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.agent.reports.welcomed(saves=False)
        await host.control.assign(a_job("j1", script(**SAVES, save_bytes=100_000)))
        assert (await host.control.outcome("j1")).end == "completed"
        assert told(host) == [("chunk", n) for n in range(4)]

    play(story)


MANY = {"chunks": list(range(200)), "saves": 1, "save_bytes": 20_000, "run_s": 2}


def test_of_saves_that_come_too_fast_the_newest_are_reported(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(**MANY, error="no", retryable=True)))
        outcome = await host.control.outcome("j1")
        saves = host.control.about(Save, "j1")
        size = sum(len(save.state) for save in saves)
        assert size <= BURST_BYTES + (outcome.execution_ms / 1000 + 1) * BYTES_PER_S
        assert len(host.control.about(Chunk, "j1")) == 200
        assert [save.upto for save in saves] == sorted({save.upto for save in saves})
        assert saves[-1].upto == 200, "the last one comes with the end"
        assert told(host)[-1] == ("save", 200)

    play(story)


def test_a_save_that_waits_is_reported_in_its_time_and_by_a_worker_that_dies(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(**{**MANY, "run_s": 1})))
        await host.control.until(lambda: len(host.control.about(Chunk, "j1")) == 150)
        before = host.control.about(Save, "j1")[-1].upto
        assert before < 140
        host.spawner.processes[0].exit(-9)
        assert (await host.control.outcome("j1")).end == "lost"
        assert host.control.about(Save, "j1")[-1].upto >= 149

    play(story)


SOME = 20
"""So many saves of 40 kB are more than are reported at once."""


def save(host, n, size=40_000):
    host.spawner.processes[0].emit(Frame("save", {"job": "j1", "attempt": 1, "n": n, "upto": 0}, bytes(size)))


async def has_one_that_waits(host, assign):
    """Runs a job whose last save, of SOME, waits."""
    await host.control.assign(assign)
    await host.holds_work()
    for n in range(SOME):
        save(host, n)
    await host.control.until(lambda: host.control.about(Save, "j1"))
    assert host.control.about(Save, "j1")[-1].n < SOME - 1


def test_a_save_that_waits_comes_before_a_large_one_that_is_not_stored_yet(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await has_one_that_waits(host, a_job("j1", script(run_s=60, progress=[1, 2, 3])))
        host.objects.down = True
        save(host, SOME, size=100_000)
        await host.control.until(lambda: host.control.about(Save, "j1")[-1].n == SOME - 1)
        host.spawner.processes[0].exit(-9)
        assert (await host.control.outcome("j1")).end == "lost"
        assert host.control.about(Save, "j1")[-1].n == SOME - 1

    play(story)


STOPS = {"cancelled": 60_000, "timed_out": 100, "failed": 60_000}
"""For each end: the execution timeout of the attempt, in milliseconds."""


@pytest.mark.parametrize(
    ("end", "retryable", "keeps_case", "reported"),
    [
        ("cancelled", False, False, False),
        ("cancelled", False, True, False),
        ("timed_out", False, False, False),
        ("timed_out", False, True, True),
        ("failed", False, False, False),
        ("failed", False, True, True),
        ("failed", True, False, True),
    ],
)
def test_a_save_that_waits_at_the_end_is_reported_to_who_goes_on_from_it(
    play, a_worker, a_job, end, retryable, keeps_case, reported
):
    async def story(host):
        await host.control.ready(a_worker())
        work = script(run_s=0.2, error="no", retryable=retryable)
        assign = a_job("j1", work, execution_timeout_ms=STOPS[end])
        await has_one_that_waits(host, replace(assign, keeps_case=keeps_case))
        if end == "cancelled":
            await host.control.cancel("j1")
        assert (await host.control.outcome("j1")).end == end
        assert (host.control.about(Save, "j1")[-1].n == SOME - 1) is reported

    play(story)


def test_after_an_outage_the_newest_of_the_large_saves_is_stored_without_those_between(play, a_worker, a_job):
    """With one upload for each, a worker's death soon afterwards would cost the work of the outage."""

    async def story(host):
        await host.control.ready(a_worker())
        host.objects.down = True
        work = script(chunks=list(range(SOME)), saves=1, save_bytes=100_000, run_s=60)
        await host.control.assign(a_job("j1", work, execution_timeout_ms=100_000))
        await asyncio.sleep(20)
        host.objects.down = False
        host.objects.delay = lambda: 0.5
        await host.control.until(lambda: host.control.about(Save, "j1"))
        host.spawner.processes[0].exit(-9)
        assert (await host.control.outcome("j1")).end == "lost"
        first, newest = host.control.about(Save, "j1")
        made = len(host.control.about(Chunk, "j1"))
        assert first.n == 0
        assert SOME / 4 < made <= newest.upto + 1, "at most the chunk that was being saved is made again"
        assert len(host.objects.blobs) == 2

    play(story)
