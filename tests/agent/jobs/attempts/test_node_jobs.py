"""Stories of jobs on one node: what control asks, what the host does, what control hears."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest
from msgspec.structs import replace

from stoker.testing.fake_spawner import Start
from stoker.wire.messages import (
    Cancel,
    Chunk,
    FromControl,
    Outcome,
    Price,
    Progress,
    Ref,
    Refused,
    Released,
    Uploading,
)
from stoker.worker.frames import Frame


def test_a_job_runs_and_its_outcome_alone_says_so(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        before = len(host.control.reports)
        await host.control.assign(a_job("j1", b'{"output":{"ok":true},"run_s":3}'))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, json.loads(outcome.output), outcome.worker) == ("completed", {"ok": True}, "w1")
        assert (outcome.execution_ms, outcome.wait_ms) == (3000, 0)
        assert [span.quantity for span in outcome.spans] == [3000]
        # the fast path: no started, no released, no uploading
        assert [type(report.body) for report in host.control.reports[before:]] == [Outcome]
        assert host.scratch.folders == set()

    play(story)


def test_an_input_reaches_the_worker_as_it_is(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"prompt" : "\xc3\xa9"}'))
        assert json.loads((await host.control.outcome("j1")).output) == {"prompt": "é"}
        (run,) = [frame for frame in host.spawner.of("w1").sent if frame.kind == "run"]
        assert run.body == b'{"prompt" : "\xc3\xa9"}'
        assert run.fields == {"job": "j1", "attempt": 1, "scratch": "/scratch/j1/1"}

    play(story)


def test_an_assign_twice_runs_once(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        assign = a_job("j1")
        await host.control.assign(assign, assign)
        await host.control.outcome("j1")
        await host.control.assign(assign)
        await host.control.assign(a_job("j2"))
        await host.control.outcome("j2")
        ran = [frame.job for frame in host.spawner.of("w1").sent if frame.kind == "run"]
        assert ran == ["j1", "j2"]
        assert host.control.about(Refused, "j1") == []

    play(story)


def test_what_cannot_be_taken_is_refused_with_the_reason(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", on="w9"))
        assert "no worker w9" in (await host.control.refused("j1")).reason
        await host.control.ready(a_worker(), a_worker("w3", concurrency=2))
        await host.control.assign(*(a_job(f"k{n}", b'{"run_s": 1}', on="w3") for n in range(2)))
        await host.control.assign(a_job("j2", b'{"run_s": 1}'), a_job("j3", on="w3"))
        assert "busy" in (await host.control.refused("j3")).reason
        await host.control.desire(a_worker(), a_worker("w2", endpoint="slow"))
        await host.control.assign(a_job("j4", on="w2"))
        assert "starting" in (await host.control.refused("j4")).reason
        host.scratch.full = True
        await host.control.outcome("j2")
        await host.control.assign(a_job("j5"))
        assert "No space left" in (await host.control.refused("j5")).reason

    play(story, starts={"slow": Start(ready_s=60)})


def test_a_handlers_error_is_final_unless_it_says_otherwise(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"error": "bad voice"}'))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.error, outcome.retryable) == ("failed", "bad voice", False)
        await host.control.assign(a_job("j2", b'{"error": "busy", "retryable": true}'))
        assert (await host.control.outcome("j2")).retryable

    play(story)


def test_progress_is_the_last_value_once_a_second_and_chunks_are_all(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        script = {"run_s": 3, "progress": list(range(30)), "chunks": ["a", "b"]}
        await host.control.assign(a_job("j1", json.dumps(script).encode()))
        await host.control.outcome("j1")
        shown = [json.loads(body.value) for body in host.control.about(Progress, "j1")]
        assert shown[0] == 0
        assert shown[-1] == 29
        assert 3 <= len(shown) <= 5
        chunks = host.control.about(Chunk, "j1")
        assert [(chunk.n, json.loads(chunk.value)) for chunk in chunks] == [(0, "a"), (1, "b")]
        assert isinstance(host.control.reports[-1].body, Outcome)

    play(story)


def test_a_cancel_is_cooperative_and_the_worker_lives_on(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 60}'))
        await host.control.cancel("j1")
        assert (await host.control.outcome("j1")).end == "cancelled"
        process = host.spawner.of("w1")
        assert process.signals == []
        await host.control.assign(a_job("j2"))
        assert (await host.control.outcome("j2")).end == "completed"
        assert host.spawner.of("w1") is process
        await host.control.cancel("j1")
        await host.control.cancel("never-seen")

    play(story)


def test_a_stuck_handler_is_killed_and_the_next_job_runs(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        loop = asyncio.get_running_loop()
        begun = loop.time()
        script = b'{"run_s": 600, "ignore_cancel": true, "ignore_term": true}'
        await host.control.assign(a_job("j1", script, execution_timeout_ms=5000))
        outcome = await host.control.outcome("j1")
        by_force = host.settings.cancel_s + host.settings.stop_ladder.term_s
        took = loop.time() - begun
        assert outcome.end == "timed_out"
        assert "5 s" in outcome.error
        assert 5 + by_force <= took < 5.1 + by_force
        killed = host.spawner.spawned[0]
        assert killed.signals == ["TERM", "KILL"]
        await host.control.worker_is("w1", "ready")
        await host.control.assign(a_job("j2"))
        assert (await host.control.outcome("j2")).end == "completed"
        states = [news.state for news in host.control.news("w1")]
        assert states == ["ready", "stopping", "starting", "ready"]

    play(story)


def test_a_done_after_the_timeout_changes_nothing(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        script = b'{"run_s": 6, "ignore_cancel": true, "output": "late"}'
        await host.control.assign(a_job("j1", script, execution_timeout_ms=5000))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.output) == ("timed_out", None)
        assert host.spawner.of("w1").signals == []

    play(story)


def test_a_neighbour_that_fails_of_the_signal_is_handed_back_uncounted(play, a_worker, a_job):
    """It reaches everything that was started on that worker, a helper of the neighbour's too."""

    async def story(host):
        await host.control.ready(a_worker(concurrency=3))
        stuck = b'{"run_s": 600, "ignore_cancel": true, "ignore_term": true}'
        await host.control.assign(
            a_job("j1", stuck, execution_timeout_ms=5000),
            a_job("j2", b'{"run_s": 99}'),
            a_job("j3", b'{"run_s": 8}'),
        )
        await host.control.until(lambda: host.spawner.of("w1").signals == ["TERM"])
        about = {"job": "j2", "attempt": 1, "error": "the helper ended", "retryable": False}
        host.spawner.of("w1").emit(Frame("failed", about))
        assert "did not stop" in (await host.control.refused("j2")).reason
        assert (await host.control.outcome("j3")).end == "completed", "a result is one"
        assert (await host.control.outcome("j1")).end == "timed_out"

    play(story)


def test_neighbours_of_a_kill_are_handed_back_uncounted(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        stuck = b'{"run_s": 600, "ignore_cancel": true, "ignore_term": true}'
        await host.control.assign(
            a_job("j1", stuck, execution_timeout_ms=5000), a_job("j2", b'{"run_s": 99}')
        )
        assert (await host.control.outcome("j1")).end == "timed_out"
        assert "did not stop" in (await host.control.refused("j2")).reason
        assert host.control.about(Outcome, "j2") == []

    play(story)


def test_a_worker_that_dies_loses_its_attempts_and_starts_again_at_once(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 1, "exit": -11}'))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.retryable) == ("lost", True)
        assert "worker died" in outcome.error
        # control must hear that the worker is not usable before it hears that its slot is free
        kinds = [type(report.body).__name__ for report in host.control.reports]
        assert kinds[-2:] == ["WorkerState", "Outcome"]
        begun = asyncio.get_running_loop().time()
        await host.control.worker_is("w1", "ready")
        assert asyncio.get_running_loop().time() - begun < 0.1

    play(story)


def test_a_result_with_a_file_frees_the_slot_first_and_ends_with_its_url(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        script = {
            "files": [{"name": "a b.png", "content": "picture", "media_type": "image/png"}],
            "output": {"image_url": {"$file": 0}},
            "metrics": {"pixel": 1048576},
            "run_s": 2,
        }
        prices = (Price("pixel", 20), Price("device_ms", 3))
        await host.control.assign(a_job("j1", json.dumps(script).encode(), prices=prices))
        outcome = await host.control.outcome("j1")
        key = "e1/j1/1/0-a-b.png"
        output = json.loads(outcome.output)
        assert output["cost"] == 0.02097152
        assert key in output["image_url"]
        assert host.objects.blobs["bucket", key] == b"picture"
        (artifact,) = outcome.artifacts
        assert (artifact.key, artifact.size, artifact.media_type) == (key, 7, "image/png")
        assert [(s.kind, s.unit, s.quantity, s.nano_usd) for s in outcome.spans] == [
            ("execution", "device_ms", 2000, 6000),
            ("output", "pixel", 1048576, 20971520),
        ]
        kinds = [type(report.body) for report in host.control.reports[-3:]]
        assert kinds == [Released, Uploading, Outcome]

    play(story)


def test_while_the_object_store_is_down_the_worker_takes_the_next_job(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.down = True
        script = b'{"files": [{"name": "a.png"}], "output": [{"$file": 0}], "run_s": 4}'
        await host.control.assign(a_job("j1", script, execution_timeout_ms=5000))
        await host.control.until(lambda: host.control.about(Uploading, "j1"))
        await host.control.assign(a_job("j2", b'{"run_s": 20}', execution_timeout_ms=50000))
        await host.control.outcome("j2")
        assert host.control.about(Outcome, "j1") == []
        begun, delayed = host.control.about(Uploading, "j1")
        assert (begun.why, len(host.control.about(Released, "j1"))) == ("", 1)
        assert delayed.why.startswith("the result could not be uploaded: ")
        assert [held.phase for held in host.agent.attempts.held()] == ["uploading"]
        assert host.agent.attempts.upload_failures > 1, "each try, though only the first one is reported"
        host.objects.down = False
        outcome = await host.control.outcome("j1")
        # executionTimeout stopped with the handler
        assert (outcome.end, outcome.execution_ms) == ("completed", 4000)

    play(story)


def test_an_upload_is_given_up_at_the_ttl(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.objects.down = True
        script = b'{"files": [{"name": "a.png"}], "output": [{"$file": 0}]}'
        await host.control.assign(a_job("j1", script, ttl_s=100.0))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.retryable) == ("failed", False)
        assert "ttl" in outcome.error

    play(story)


def test_an_output_over_a_megabyte_goes_to_the_object_store(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", json.dumps("x" * 1_100_000).encode()))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.output) == ("completed", None)
        assert outcome.output_ref.key == "e1/j1/1/output.json"
        assert json.loads(host.objects.blobs["bucket", outcome.output_ref.key]) == "x" * 1_100_000

    play(story)


def test_a_file_that_may_not_be_handed_over_fails_the_attempt(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        host.scratch.refuse = "a.png is a symbolic link; a File must be a regular file"
        script = b'{"files": [{"name": "a.png"}], "output": [{"$file": 0}]}'
        await host.control.assign(a_job("j1", script))
        outcome = await host.control.outcome("j1")
        assert (outcome.end, outcome.retryable) == ("failed", False)
        assert "symbolic link" in outcome.error
        assert host.objects.blobs == {}

    play(story)


def test_a_result_that_needs_a_store_and_has_none_fails_with_a_message(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        script = b'{"files": [{"name": "a.png"}], "output": [{"$file": 0}]}'
        await host.control.assign(a_job("j1", script, grant=None))
        assert "object store" in (await host.control.outcome("j1")).error
        await host.control.assign(a_job("j2", b'{"files": [{"name": "a.png"}], "output": [{"$file": 7}]}'))
        assert "file 7" in (await host.control.outcome("j2")).error

    play(story)


def test_a_partial_output_that_has_no_store_or_holds_a_file_fails_the_attempt(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        script = {"chunks": [{"characters": 1_100_000}], "run_s": 30}
        await host.control.assign(a_job("j1", json.dumps(script).encode(), grant=None))
        outcome = await host.control.outcome("j1")
        assert outcome.end == "failed"
        assert "needs an object store" in outcome.error
        script = {"chunks": [{"preview": {"$file": 0}}], "run_s": 30}
        await host.control.assign(a_job("j2", json.dumps(script).encode()))
        assert "File" in (await host.control.outcome("j2")).error
        assert host.control.bodies(Chunk) == []
        # a text that only mentions it is no mark
        await host.control.assign(a_job("j3", json.dumps({"chunks": ['{"$file": 0}', "$file"]}).encode()))
        assert (await host.control.outcome("j3")).end == "completed"

    play(story)


def test_an_input_in_the_object_store_is_fetched_first(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        assign = a_job("j1")
        ref = await host.objects.put_bytes(
            replace(assign.grant, prefix="e1/j1/"),
            "e1/j1/input.json",
            b'{"output":"big"}',
            "application/json",
        )
        host.objects.fail(2)
        await host.control.assign(replace(assign, input=None, input_ref=ref))
        outcome = await host.control.outcome("j1")
        assert json.loads(outcome.output) == "big"
        assert outcome.wait_ms > 0
        missing = Ref("e1/j2/input.json", 3, "0")
        await host.control.assign(replace(a_job("j2"), input=None, input_ref=missing))
        assert "input" in (await host.control.outcome("j2")).error
        host.objects.down = True
        await host.control.assign(replace(a_job("j3"), input=None, input_ref=ref))
        await host.control.cancel("j3")
        assert (await host.control.outcome("j3")).end == "cancelled"

    play(story)


def test_an_input_for_which_no_descriptor_is_left_is_given_back(play, a_worker, a_job, monkeypatch):
    """Its worker is free for the next job, and the session goes on."""

    async def story(host):
        await host.control.ready(a_worker())
        process, send = host.spawner.of("w1"), type(host.spawner.of("w1")).send

        def fails(frame):
            if frame.kind == "run" and frame.job == "j1":
                raise OSError(errno.EMFILE, "Too many open files")
            send(process, frame)

        monkeypatch.setattr(process, "send", fails)
        await host.control.assign(a_job("j1"))
        await host.control.until(lambda: host.control.about(Refused, "j1"))
        (refused,) = host.control.about(Refused, "j1")
        assert refused.reason == "its input could not be sent: Too many open files"
        await host.control.assign(a_job("j2", b'{"output": 2}'))
        assert (await host.control.outcome("j2")).end == "completed"
        assert len(host.control.hellos) == 1
        assert host.spawner.spawned == [process]

    play(story)


def test_a_newer_attempt_ends_the_older_one_in_silence(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker(concurrency=2))
        await host.control.assign(a_job("j1", b'{"run_s": 100}'))
        await host.control.assign(a_job("j1", b'{"output": 2}', attempt=2))
        assert json.loads((await host.control.outcome("j1", 2)).output) == 2
        await host.control.until(lambda: host.control.about(Released, "j1"))
        assert host.control.about(Outcome, "j1") == []
        await host.control.assign(a_job("j1"))
        assert host.control.about(Refused, "j1") == []

    play(story)


def test_a_worker_that_does_not_speak_the_protocol_is_killed(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j1", b'{"run_s": 100}'))
        await host.holds_work()
        host.spawner.of("w1").emit(Frame("chunk", {"job": "j1", "attempt": 1, "n": -1}, b"1"))
        outcome = await host.control.outcome("j1")
        assert outcome.end == "lost"
        assert "protocol" in outcome.error
        assert host.spawner.spawned[0].signals == ["KILL"]

    play(story)


@pytest.mark.parametrize("stray", [("j1", 1), ("j1", 2), ("jx", 1)])
def test_who_speaks_of_a_job_that_is_not_its_own_is_ended_and_changes_nothing(play, a_worker, a_job, stray):
    async def story(host):
        await host.control.ready(a_worker(), a_worker("w2"))
        await host.control.assign(a_job("j1", b'{"run_s": 5}', attempt=2))
        await host.holds_work()
        job, attempt = stray
        about = {"job": job, "attempt": attempt, "files": 0, "metrics": {}}
        host.spawner.of("w2").emit(Frame("done", about, b"1"))
        outcome = await host.control.outcome("j1", 2)
        assert (outcome.end, outcome.execution_ms) == ("completed", 5000)
        news = await host.control.worker_is("w2", "ready")
        assert f"it spoke of job {job}, which is not its own" in news.reason or len(host.spawner.spawned) == 3

    play(story)


def test_commands_in_one_message_are_taken_in_the_order_of_their_meaning(play, a_worker, a_job):
    async def story(host):
        await host.control.ready(a_worker())
        together = FromControl(
            assigns=(a_job("j1", b'{"run_s": 9}'),), cancels=(Cancel("j1", 1, "cancelled"),)
        )
        await host.control.say(together)
        assert (await host.control.outcome("j1")).end == "cancelled"

    play(story)
