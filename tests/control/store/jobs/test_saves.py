"""Saves in the store: a later attempt goes on from the last, readers notice nothing, no object is left."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.control import store
from stoker.control.rules.job_states import JobState
from stoker.control.rules.nodes.validation import AssignedWorker
from stoker.control.rules.retries import MAX_ASSIGNMENTS
from stoker.control.rules.types import EndpointVersion
from stoker.wire.messages import Chunk, Ref, Save, Saved, Span
from tests.control.store.conftest import ACCOUNT, Bench, E

START = (0, -1)


def chunk(claimed: Any, n: int, text: str = "", ref: Ref | None = None) -> Chunk:
    value = json.dumps(text or f"{n} of {claimed.attempt}").encode()
    return Chunk(claimed.job, claimed.attempt, n, b"" if ref else value, ref)


def save(claimed: Any, n: int, upto: int, state: bytes = b"state", ref: Ref | None = None) -> Save:
    return Save(claimed.job, claimed.attempt, n, upto, b"" if ref else state, ref)


def stored(claimed: Any, n: int) -> Ref:
    return Ref(f"echo/{claimed.job}/{claimed.attempt}/save-{n}", 70_000, f"digest-{claimed.attempt}-{n}")


def read(bench: Bench, job: str, after: tuple[int, int] = START) -> list[tuple[int, int, Any]]:
    found = store.chunks(bench.store.writer, job, after, 100)
    return [(one.attempt, one.n, one.value and json.loads(one.value)) for one in found]


def again(bench: Bench, at: float, claimed: Any) -> Any:
    """Loses the attempt's worker, and claims the job for the next."""
    bench.report(at, bench.lost(claimed))
    (following,) = bench.claim(at + 100, bench.slot())
    return following


def test_the_next_attempt_goes_on_from_the_last_save_and_keeps_its_chunks(bench: Bench) -> None:
    first = bench.running(10.0)
    bench.report(11.0, chunk(first, 0), save(first, 0, 1, b"one"), chunk(first, 1), save(first, 1, 2, b"two"))
    bench.report(12.0, chunk(first, 2))
    second = again(bench, 13.0, first)
    assert (second.attempt, second.saved) == (2, Saved(2, b"two"))
    assert read(bench, first.job) == [(1, 0, "0 of 1"), (1, 1, "1 of 1")]
    bench.report(130.0, chunk(second, 2), chunk(second, 3), bench.done(second))
    assert read(bench, first.job) == [
        (1, 0, "0 of 1"),
        (1, 1, "1 of 1"),
        (1, 2, "2 of 2"),
        (1, 3, "3 of 2"),
    ], "numbered as the first attempt's, so that no reader starts again"
    assert bench.rows("SELECT count(*) FROM saves") == [(0,)]


def test_chunks_reach_readers_with_the_save_that_covers_them(bench: Bench) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, chunk(claimed, 0))
    assert read(bench, claimed.job) == [(1, 0, "0 of 1")], "as long as the job has not saved"
    bench.report(12.0, save(claimed, 0, 1), chunk(claimed, 1), chunk(claimed, 2))
    assert read(bench, claimed.job) == [(1, 0, "0 of 1")]
    applied = bench.report(13.0, save(claimed, 1, 2, b"more"))
    assert applied.chunks == (bench.key(claimed),), "its readers are woken"
    assert read(bench, claimed.job, (1, 0)) == [(1, 1, "1 of 1")]
    bench.report(14.0, bench.done(claimed))
    assert read(bench, claimed.job, (1, 1)) == [(1, 2, "2 of 1")], "and with the end"


@pytest.mark.parametrize("end", ["cancel", "wait_over", "given_up", "purge"])
def test_every_end_shows_all_chunks_and_drops_the_save(bench: Bench, end: str) -> None:
    claimed = bench.running(10.0, max_attempts=1)
    ref = stored(claimed, 0)
    bench.report(11.0, save(claimed, 0, 0, ref=ref), chunk(claimed, 0))
    if end == "cancel":
        bench.cancel(12.0, claimed.job)
    elif end == "wait_over":
        bench.end_wait(12.0, claimed.job)
    elif end == "purge":
        bench.report(12.0, bench.lost(claimed))
        bench.purge(13.0, bench.newest())
    else:
        bench.report(12.0, bench.done(claimed, end="failed", error="no"))
    assert read(bench, claimed.job) == [(1, 0, "0 of 1")]
    assert bench.rows("SELECT count(*) FROM saves") == [(0,)]
    assert ref.key in bench.due_orphans()


def test_an_attempt_that_saved_something_new_is_not_counted(bench: Bench) -> None:
    claimed = bench.running(10.0, max_attempts=1)
    for n in range(2 * MAX_ASSIGNMENTS):
        bench.report(11.0 + 200 * n, save(claimed, 0, 0, b"step %d" % n))
        claimed = again(bench, 12.0 + 200 * n, claimed)
        assert claimed.saved == Saved(0, b"step %d" % n)
    bench.report(9_000.0, save(claimed, 0, 0, b"step %d" % n), bench.lost(claimed))
    view = bench.view(9_000.0, claimed.job)
    assert view is not None
    assert view.state is JobState.FAILED, "this one saved only what was there before"
    assert view.error == "worker died: killed by SIGKILL; gave up after 1 attempt"


def test_a_node_that_is_lost_after_progress_is_not_counted_either(bench: Bench) -> None:
    claimed = bench.running(10.0, max_attempts=1)
    for n in range(2 * MAX_ASSIGNMENTS):
        bench.report(11.0 + 200 * n, save(claimed, 0, 0, b"step %d" % n))
        bench.requeue(12.0 + 200 * n)
        bench.node("n1", 13.0 + 200 * n)
        (claimed,) = bench.claim(100.0 + 200 * n, bench.slot())
    bench.requeue(9_000.0)
    view = bench.view(9_000.0, claimed.job)
    assert view is not None
    assert view.state is JobState.FAILED


def test_a_save_that_comes_again_or_late_changes_nothing(bench: Bench) -> None:
    first = bench.running(10.0)
    older, newer = stored(first, 0), stored(first, 1)
    bench.report(11.0, save(first, 0, 0, ref=older), save(first, 1, 0, ref=newer))
    assert bench.due_orphans() == (older.key,), "a save takes the place of the one before"
    applied = bench.report(12.0, save(first, 1, 0, ref=newer))
    assert (applied.stale, bench.due_orphans()) == ((), (older.key,))
    second = again(bench, 13.0, first)
    assert second.saved == Saved(0, b"", newer)
    late = Ref(f"echo/{first.job}/1/save-2", 70_000, "late")
    applied = bench.report(130.0, save(first, 2, 0, ref=late))
    assert applied.stale == (bench.key(first),)
    assert set(bench.due_orphans()) == {older.key, late.key}


def test_a_save_that_covers_a_chunk_which_never_came_is_ignored(bench: Bench) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, chunk(claimed, 0), save(claimed, 0, 2))
    bench.report(11.5, chunk(claimed, 2), save(claimed, 1, 3))
    assert again(bench, 12.0, claimed).saved is None


def test_a_save_behind_a_chunk_which_never_came_leaves_the_one_before(bench: Bench) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, chunk(claimed, 0), save(claimed, 0, 1, b"good"))
    bench.report(12.0, chunk(claimed, 2), save(claimed, 1, 3), save(claimed, 2, 0))
    assert again(bench, 13.0, claimed).saved == Saved(1, b"good")


def test_objects_of_kept_chunks_live_and_those_of_others_go(bench: Bench) -> None:
    first = bench.running(10.0)
    kept = Ref(f"echo/{first.job}/1/chunk-0.json", 3_000_000, "kept")
    void = Ref(f"echo/{first.job}/1/chunk-1.json", 3_000_000, "void")
    bench.report(11.0, chunk(first, 0, ref=kept), save(first, 0, 1), chunk(first, 1, ref=void))
    second = again(bench, 12.0, first)
    assert bench.due_orphans() == (void.key,)
    (changed,) = bench.report(130.0, bench.done(second)).changed
    assert changed.losers == (), "the first attempt's prefix has a chunk that is read on"
    assert [one.ref for one in store.chunks(bench.store.writer, first.job, START, 9)] == [kept]
    bench.expire(1e6)
    assert kept.key in bench.due_orphans()


def reasons(bench: Bench, job: str) -> list[str | None]:
    """Why each attempt at the job ended."""
    told = store.job_attempts(bench.store.writer, ACCOUNT, E, job, 120.0)
    assert told is not None
    return [one.reason for one in told.attempts]


def test_another_version_begins_anew_and_says_why(bench: Bench) -> None:
    def given(worker: str, version: int, *devices: str) -> None:
        made = {worker: ("n1", AssignedWorker("echo", version, 1, devices))}
        bench.do(lambda conn: store.give_workers(conn, made))

    given("w1", 3, "GPU-1")
    given("w2", 4, "GPU-1")
    first = bench.running(10.0)
    ref = stored(first, 0)
    bench.report(11.0, chunk(first, 0), save(first, 0, 1, ref=ref), bench.lost(first))
    (second,) = bench.claim(100.0, bench.slot(worker="w2"))
    assert second.saved is None
    assert ref.key in bench.due_orphans()
    view = bench.view(101.0, first.job)
    assert view is not None
    assert view.reason == (
        "the job begins anew: its save was made by version 3 on GPU-1, and worker w2 is version 4 on GPU-1"
    )
    assert (view.stream, read(bench, first.job)) == (2, [])
    bench.report(110.0, chunk(second, 0), bench.done(second))
    assert read(bench, first.job, (1, 0)) == [(2, 0, "0 of 2")]
    assert reasons(bench, first.job) == [f"worker died: killed by SIGKILL; {view.reason}", None]


def test_an_agent_of_an_earlier_version_begins_anew(bench: Bench) -> None:
    """It would number its chunks from 0, behind those that are kept."""
    first = bench.running(10.0)
    bench.report(11.0, chunk(first, 0), save(first, 0, 1), bench.lost(first))
    (second,) = bench.claim(100.0, replace(bench.slot(), saves=False))
    assert second.saved is None
    view = bench.view(101.0, first.job)
    assert view is not None
    assert view.reason == "the job begins anew: the agent of node n1 is of an earlier version without saves"
    bench.report(110.0, chunk(second, 0), bench.done(second))
    assert read(bench, first.job, (1, 0)) == [(2, 0, "0 of 2")]
    assert reasons(bench, first.job) == [f"worker died: killed by SIGKILL; {view.reason}", None]


def test_a_callers_retry_begins_anew(bench: Bench) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, chunk(claimed, 0), save(claimed, 0, 1), bench.done(claimed, end="failed", error="no"))
    bench.retry(12.0, claimed.job)
    (second,) = bench.claim(13.0, bench.slot())
    assert (second.saved, read(bench, claimed.job)) == (None, [])
    bench.report(14.0, chunk(second, 0))
    assert read(bench, claimed.job) == [(2, 0, "0 of 2")]


def test_only_the_node_that_holds_the_attempt_may_save_and_read_the_save(bench: Bench) -> None:
    bench.node("n2", 0.0)
    claimed = bench.running(10.0)
    applied = bench.report(11.0, save(claimed, 0, 0, b"of a stranger"), node="n2")
    assert applied.stale == (bench.key(claimed),)
    ref = stored(claimed, 0)
    bench.report(12.0, save(claimed, 0, 0, ref=ref))
    second = again(bench, 13.0, claimed)
    right = store.upload_right(bench.store.writer, "n1", second.job, second.attempt)
    assert right is not None
    assert right.save_key == ref.key
    assert store.upload_right(bench.store.writer, "n2", second.job, second.attempt) is None


def test_a_save_is_not_bound_to_the_number_of_the_version(bench: Bench) -> None:
    """A change of prices or needs makes a version that runs the same; one of the handler does not."""
    run = EndpointVersion("handlers/long.py:handler", env={"STOKER_PROFILE": "exact"})
    versions = [
        bench.put_endpoint("long", run=one).version
        for one in (run, replace(run, start_timeout_s=7.0), replace(run, env={"STOKER_PROFILE": "fast"}))
    ]
    assert versions == [1, 2, 3]
    for version in versions:
        made = {f"w{version}": ("n1", AssignedWorker("long", version, 1, ("GPU-1",)))}
        bench.do(lambda conn, made=made: store.give_workers(conn, made))
    _, (first,) = bench.submit(10.0, bench.slot(worker="w1", endpoint="long"), endpoint="long")
    bench.report(11.0, save(first, 0, 0, b"one"), bench.lost(first))
    (second,) = bench.claim(100.0, bench.slot(worker="w2", endpoint="long"))
    assert second.saved == Saved(0, b"one")
    bench.report(110.0, bench.lost(second))
    (third,) = bench.claim(200.0, bench.slot(worker="w3", endpoint="long"))
    assert third.saved is None
    ((reason,),) = bench.rows("SELECT reason FROM jobs")
    assert reason == (
        "the job begins anew: its save was made by version 1 on GPU-1, and worker w3 is version 3 on GPU-1"
    )


@pytest.mark.parametrize(("device", "name"), [("GPU-2", "H200"), ("GPU-3", "L4")])
def test_a_save_is_good_for_another_device_of_its_kind_alone(bench: Bench, device: str, name: str) -> None:
    known = [{"uuid": uuid, "name": kind} for uuid, kind in (("GPU-1", "H200"), (device, name))]
    bench.do(lambda conn: conn.run("UPDATE nodes SET devices = :known", {"known": json.dumps(known)}))
    bench.put_endpoint("echo", run=EndpointVersion("long.py:handler", env={"STOKER_PROFILE": "fast"}))
    for worker, uuid in (("w1", "GPU-1"), ("w2", device)):
        made = {worker: ("n1", AssignedWorker("echo", 1, 1, (uuid,)))}
        bench.do(lambda conn, made=made: store.give_workers(conn, made))
    first = bench.running(10.0)
    bench.report(11.0, save(first, 0, 0, b"one"), bench.lost(first))
    (second,) = bench.claim(100.0, bench.slot(worker="w2"))
    assert second.saved == (Saved(0, b"one") if name == "H200" else None)
    view = bench.view(101.0, first.job)
    assert view is not None
    assert view.reason == (
        None
        if name == "H200"
        else "the job begins anew: its save was made by version 1 on H200, and worker w2 is version 1 on L4"
    )


def test_a_save_of_an_earlier_release_is_good_for_its_version(bench: Bench) -> None:
    bench.do(lambda conn: store.give_workers(conn, {"w1": ("n1", AssignedWorker("echo", 1, 1, ("GPU-1",)))}))
    first = bench.running(10.0)
    bench.report(11.0, save(first, 0, 0, b"one"))
    bench.do(lambda conn: conn.run("UPDATE saves SET made_by = 'version 1 on GPU-1'", {}))
    assert again(bench, 12.0, first).saved == Saved(0, b"one")


def test_a_report_that_is_repeated_late_leaves_the_object_of_the_save(bench: Bench) -> None:
    first = bench.running(10.0)
    ref = stored(first, 0)
    bench.report(11.0, save(first, 0, 0, ref=ref), bench.lost(first))
    assert bench.report(12.0, save(first, 0, 0, ref=ref)).stale == (bench.key(first),)
    assert bench.due_orphans() == (), "the next attempt reads it"
    (second,) = bench.claim(100.0, bench.slot())
    assert second.saved == Saved(0, b"", ref)


def test_a_callers_retry_leaves_no_file_beside_the_kept_chunks(bench: Bench) -> None:
    first = bench.running(10.0)
    kept = Ref(f"echo/{first.job}/1/chunk-0.json", 3_000_000, "kept")
    bench.report(11.0, chunk(first, 0, ref=kept), save(first, 0, 1))
    second = again(bench, 12.0, first)
    bench.report(130.0, bench.done(second, end="failed", error="no"))
    assert f"echo/{first.job}/1/" not in bench.due_orphans(), "a chunk there is still read"
    bench.retry(140.0, first.job)
    assert f"echo/{first.job}/1/" in bench.due_orphans()


def test_a_job_that_yielded_goes_back_uncounted_with_its_reason_and_is_billed_once(bench: Bench) -> None:
    ran = Span("execution", "device_ms", 7, 70)
    claimed = bench.running(10.0, max_attempts=1)
    bench.submit(11.0)
    for n in range(2 * MAX_ASSIGNMENTS):
        at = 12.0 + n
        outcome = bench.done(claimed, end="yielded", error="node n1 is drained", retryable=True, spans=(ran,))
        bench.report(at, save(claimed, 0, 0, b"step %d" % n), outcome, outcome)
        view = bench.view(at, claimed.job)
        assert view is not None
        assert (view.state, view.reason, view.retries) == (
            JobState.IN_QUEUE,
            "yielded: node n1 is drained",
            0,
        )
        (claimed,) = bench.claim(at, bench.slot())
        assert (claimed.job, claimed.saved) == (view.id, Saved(0, b"step %d" % n)), "before new work"
    billed = bench.rows(f"SELECT count(*), sum(quantity) FROM spans WHERE job = '{claimed.job}'")
    assert [tuple(map(int, row)) for row in billed] == [(2 * MAX_ASSIGNMENTS, 14 * MAX_ASSIGNMENTS)]


def test_a_job_whose_save_is_gone_begins_anew_uncounted_and_says_why(bench: Bench) -> None:
    first = bench.running(10.0, max_attempts=2)
    ref = stored(first, 0)
    bench.report(11.0, chunk(first, 0), save(first, 0, 1, ref=ref))
    second = again(bench, 12.0, first)
    why = "the save could not be fetched: there is no such object"
    gone = bench.done(second, end="failed", error=why, retryable=True, save_gone=True)
    bench.report(120.0, gone, gone)
    (third,) = bench.claim(120.0, bench.slot())
    assert (third.attempt, third.saved) == (3, None)
    view = bench.view(121.0, first.job)
    assert view is not None
    assert (view.reason, view.stream) == (f"the job begins anew: {why}", 3)
    assert read(bench, first.job) == []
    assert ref.key in bench.due_orphans()
    bench.report(130.0, chunk(third, 0), save(third, 0, 1), bench.lost(third))
    (fourth,) = bench.claim(200.0, bench.slot())
    assert fourth.saved == Saved(1, b"state"), "what it saves from now on is good"


def test_the_content_that_made_a_save_comes_back_with_it(bench: Bench) -> None:
    first = bench.running(10.0)
    bench.report(11.0, replace(save(first, 0, 0), content="source 5d41"))
    second = again(bench, 12.0, first)
    assert second.saved == Saved(0, b"state", content="source 5d41")
    bench.report(120.0, save(second, 0, 0, b"of an agent that does not know it"))
    assert again(bench, 130.0, second).saved.content == ""


@pytest.mark.parametrize("made_by", ["version 1 on GPU-1", "version 1 on GPU-1\nthe program"])
def test_a_save_of_an_earlier_release_is_good_for_any_content(bench: Bench, made_by: str) -> None:
    bench.do(lambda conn: store.give_workers(conn, {"w1": ("n1", AssignedWorker("echo", 1, 1, ("GPU-1",)))}))
    first = bench.running(10.0)
    bench.report(11.0, replace(save(first, 0, 0), content="source 5d41"))
    bench.do(lambda conn: conn.run("UPDATE saves SET made_by = :made_by", {"made_by": made_by}))
    assert again(bench, 12.0, first).saved == Saved(0, b"state")


def test_a_job_whose_program_was_changed_begins_anew_and_says_so(bench: Bench) -> None:
    first = bench.running(10.0, max_attempts=1)
    bench.report(11.0, chunk(first, 0), replace(save(first, 0, 1), content="source 5d41"))
    second = again(bench, 12.0, first)
    why = "its save was made by source 5d41, and worker w1 runs source 9e10"
    bench.report(120.0, bench.done(second, end="failed", error=why, retryable=True, save_gone=True))
    (third,) = bench.claim(120.0, bench.slot())
    assert (third.saved, read(bench, first.job)) == (None, [])
    view = bench.view(121.0, first.job)
    assert view is not None
    assert view.reason == f"the job begins anew: {why}"
