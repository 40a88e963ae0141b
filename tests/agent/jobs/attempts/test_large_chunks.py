"""Stories of streams whose chunks are too large for a message, in virtual time."""

from __future__ import annotations

import asyncio
import json

import pytest

from stoker.agent.jobs.attempts import chunks as chunk_rules
from stoker.agent.jobs.attempts.attempt_machine import FLUSH_S
from stoker.agent.jobs.reports.outbox_file import decode
from stoker.cli.log_lines import ids_of
from stoker.outbound.errors import ObjectStoreRefused
from stoker.wire.messages import Chunk, Outcome, Ref, Released, Uploading
from stoker.worker.frames import Frame

LARGE = {"characters": 3_000_000}


def chunks_of(host, name="j1"):
    """The chunks as control reads them."""
    found = []
    for chunk in host.control.about(Chunk, name):
        text = chunk.value if chunk.ref is None else host.objects.blobs["bucket", chunk.ref.key]
        value = json.loads(text)
        found.append((chunk.n, len(value) if len(value) > 100 else value))
    return found


def script(**steps):
    return json.dumps(steps).encode()


def answered(host):
    return [frame.fields["n"] for frame in host.spawner.spawned[0].sent if frame.kind == "took"]


def test_large_and_small_chunks_come_in_their_order_and_before_the_end(play, a_worker, a_job):
    async def story(host):
        host.objects.delay = lambda: 0.5
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(chunks=["a", LARGE, "b", "c", LARGE, "d"], run_s=0.1)))
        outcome = await host.control.outcome("j1")
        assert chunks_of(host) == [(0, "a"), (1, 3_000_000), (2, "b"), (3, "c"), (4, 3_000_000), (5, "d")]
        large = host.control.about(Chunk, "j1")[1]
        assert (large.value, large.ref.key, large.ref.size) == (b"", "e1/j1/1/chunk-1.json", 3_000_002)
        assert host.control.bodies(Outcome)[-1] is host.control.reports[-1].body, "the end comes last"
        assert outcome.end == "completed"
        assert outcome.execution_ms < 200, "the clock stops when the handler is done"
        assert answered(host) == [1, 4]

    play(story)


def test_the_slot_is_free_while_chunks_wait(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.down = True
        job_input = script(chunks=[LARGE, "b"], run_s=3, output="o")
        await host.control.assign(a_job("j1", job_input, execution_timeout_ms=5000))
        await host.control.until(lambda: host.control.about(Uploading, "j1"))
        assert host.control.about(Released, "j1")
        await host.control.assign(a_job("j2", b'{"run_s": 60}'))
        await host.control.outcome("j2")
        assert chunks_of(host) == []
        assert [held.phase for held in host.agent.attempts.held()] == ["uploading"]
        host.objects.down = False
        assert (await host.control.outcome("j1")).end == "completed"
        assert chunks_of(host) == [(0, 3_000_000), (1, "b")]

    play(story)


def test_a_result_is_uploaded_after_the_chunks(play, a_worker, a_job):
    async def story(host):
        host.objects.delay = lambda: 0.2
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(chunks=[LARGE], output="x" * 1_500_000)))
        outcome = await host.control.outcome("j1")
        assert outcome.output_ref is not None
        assert host.objects.calls == ["put e1/j1/1/chunk-0.json", "put e1/j1/1/output.json"]
        assert chunks_of(host) == [(0, 3_000_000)]

    play(story)


def test_a_success_is_given_up_at_its_ttl(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.down = True
        await host.control.assign(a_job("j1", script(chunks=[LARGE], run_s=1), ttl_s=100.0))
        outcome = await host.control.outcome("j1")
        assert outcome.end == "failed"
        assert "partial output was not uploaded before the job's ttl" in outcome.error
        assert chunks_of(host) == []

    play(story)


def test_a_failure_brings_what_was_emitted_before_it(play, a_worker, a_job):
    async def story(host):
        host.objects.delay = lambda: 0.5
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", script(chunks=["a", LARGE, "b"], error="no more")))
        assert (await host.control.outcome("j1")).error == "no more"
        assert chunks_of(host) == [(0, "a"), (1, 3_000_000), (2, "b")]

    play(story)


@pytest.mark.parametrize("end", ["failed", "lost", "cancelled", "timed_out"])
@pytest.mark.parametrize("store", ["down", "hanging"])
def test_no_verdict_waits_for_a_store_that_does_not_answer(play, a_worker, a_job, end, store):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.down = store == "down"
        host.objects.delay = lambda: 1000.0 if store == "hanging" else 0.0
        last = {"failed": {"error": "e"}, "lost": {"exit": -9}}.get(end, {"run_s": 20})
        job_input = a_job("j1", script(chunks=["a", LARGE, "b"], **last), execution_timeout_ms=12_000)
        await host.control.assign(job_input)
        await host.until(lambda: answered(host))
        emitted = asyncio.get_running_loop().time()
        if end == "cancelled":
            await host.control.cancel("j1")
        outcome = await host.control.outcome("j1")
        took = asyncio.get_running_loop().time() - emitted
        assert outcome.end == end
        assert took < (2.1 if end == "timed_out" else 0.1) + (FLUSH_S if store == "hanging" else 0)
        assert chunks_of(host) == [(0, "a")], (
            "what stood before the large one, and nothing that stood behind it"
        )
        await host.until(lambda: not host.agent.attempts._attempts)

    play(story)


def test_what_waits_is_bounded_and_the_handler_waits(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.down = True
        await host.control.assign(a_job("j1", script(chunks=[LARGE] * 40), execution_timeout_ms=600_000))
        await asyncio.sleep(100)
        stream = next(iter(host.agent.attempts._attempts.values())).stream
        assert sum(len(piece.body) for piece in stream._pieces.values()) <= chunk_rules.HOLD_MAX + 3_000_002
        assert answered(host) == [0, 1]
        assert [held.phase for held in host.agent.attempts.held()] == ["running"]
        host.objects.down = False
        assert (await host.control.outcome("j1")).end == "completed"
        assert [n for n, _ in chunks_of(host)] == list(range(40))

    play(story)


def test_small_chunks_behind_a_large_one_stop_the_worker_and_a_cancel_is_received(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.down = True
        many = [LARGE, *[{"characters": 900_000}] * 20]
        await host.control.assign(a_job("j1", script(chunks=many, run_s=21)))
        await host.until(lambda: host.spawner.of("w1").paused)
        stream = next(iter(host.agent.attempts._attempts.values())).stream
        assert sum(len(piece.body) for piece in stream._pieces.values()) < chunk_rules.HOLD_MAX + 5_000_000
        for full in (True, False):  # an outbox that has room again does not let this worker go
            host.agent._on_pressure(full)
            assert host.spawner.of("w1").paused
        await host.control.cancel("j1")
        assert (await host.control.outcome("j1")).end == "cancelled"
        process = host.spawner.of("w1")
        assert (process.signals, process.paused) == ([], False)
        await host.control.assign(a_job("j2"))
        await host.control.outcome("j2")

    play(story)


def test_a_chunk_that_is_refused_for_good_fails_the_attempt(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.fail(1, ObjectStoreRefused("no such bucket"))
        await host.control.assign(a_job("j1", script(chunks=[LARGE, "b"], run_s=90)))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.retryable) == ("failed", False)
        assert outcome.error == "chunk 0 of the partial output could not be uploaded: no such bucket"
        assert host.spawner.of("w1").signals == []

    play(story)


@pytest.mark.parametrize("error", [ObjectStoreRefused("no such bucket"), RuntimeError("unforeseen")])
def test_a_line_about_an_upload_that_failed_has_the_ids_of_its_attempt(play, a_worker, a_job, error, caplog):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.fail(1, error)
        await host.control.assign(a_job("j1", script(chunks=[LARGE], run_s=90)))
        await host.control.outcome("j1")
        told = [ids_of(record) for record in caplog.records if "upload" in record.getMessage()]
        assert told
        assert told == [{"job": "j1", "attempt": 1}] * len(told)

    play(story)


def test_a_large_chunk_that_nobody_wants_is_answered_all_the_same(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        body = json.dumps("x" * 2_000_000).encode()
        await host.control.assign(a_job("j1", b'{"run_s": 9, "ignore_cancel": true}'))
        await host.control.cancel("j1")
        await asyncio.sleep(0.1)
        host.spawner.of("w1").emit(Frame("chunk", {"job": "j1", "attempt": 1, "n": 0}, body))
        await host.until(lambda: answered(host) == [0])
        assert host.control.bodies(Chunk) == []
        await host.control.outcome("j1")

    play(story)


def test_the_end_of_the_agent_does_not_wait_for_chunks(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.delay = lambda: 1000.0
        await host.control.assign(a_job("j1", script(chunks=[LARGE])))
        await host.control.until(lambda: host.control.about(Uploading, "j1"))

    play(story)


def test_chunks_survive_on_disk_by_their_name(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.control.acks = False
        await host.control.assign(a_job("j1", script(chunks=[LARGE], log=["printed"])))
        await asyncio.sleep(5)
        chunk, outcome = decode(host.disk.data)
        assert isinstance(chunk.ref, Ref)
        assert outcome.log == ("printed",)

    play(story)
