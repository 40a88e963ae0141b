"""Sessions, leases and lost nodes."""

from __future__ import annotations

from typing import Any

from stoker.control import store
from stoker.control.rules.job_states import JobState
from stoker.wire.messages import AttemptKey, Device, Outcome


def test_every_hello_raises_the_session(bench: Any) -> None:
    assert bench.node("n9", 10.0) == 1
    assert bench.node("n9", 11.0) == 2


def test_a_second_boot_is_refused_while_the_first_is_alive(bench: Any) -> None:
    bench.node("n9", 10.0)
    refusal = bench.node("n9", 20.0, boot="boot-2")
    assert isinstance(refusal, str)
    assert "n9" in refusal
    assert "10 s ago" in refusal
    assert bench.node("n9", 70.1, boot="boot-2") == 2


def test_a_second_boot_takes_over_after_a_clean_end(bench: Any) -> None:
    session = bench.node("n9", 10.0)
    bench.do(lambda conn: store.close_session(conn, "n9", session, 11.0))
    assert not bench.do(lambda conn: store.touch_node(conn, "n9", session, 12.0))
    assert bench.node("n9", 12.0, boot="boot-2") == 2


def test_an_old_session_cannot_close_the_new_one(bench: Any) -> None:
    old = bench.node("n9", 10.0)
    new = bench.node("n9", 11.0)
    bench.do(lambda conn: store.close_session(conn, "n9", old, 12.0))
    assert not bench.do(lambda conn: store.touch_node(conn, "n9", old, 13.0))
    assert bench.do(lambda conn: store.touch_node(conn, "n9", new, 13.0))


def test_inventory_is_stored(bench: Any) -> None:
    device = Device("GPU-1", "gpu", "H200", memory_total=1)
    bench.do(
        lambda conn: store.open_session(
            conn,
            node="g",
            boot="b",
            name="g",
            devices=(device,),
            facts={"user": "root"},
            now=1.0,
            lease_s=60.0,
        )
    )
    ((devices, facts),) = bench.rows("SELECT devices, facts FROM nodes WHERE id = 'g'")
    assert '"GPU-1"' in devices
    assert facts == '{"user": "root"}'


def test_what_hello_lacks_goes_back_at_once_uncounted(bench: Any) -> None:
    first, second = bench.running(10.0), bench.running(11.0)
    bench.node("n1", 12.0)
    found = bench.reconcile(12.0, [bench.key(first), AttemptKey("unknown", 1), AttemptKey(first.job, 7)])
    assert found.keep == (bench.key(first),)
    assert found.stop == (AttemptKey("unknown", 1), AttemptKey(first.job, 7))
    assert [(one.job, one.state) for one in found.changed] == [(second.job, JobState.IN_QUEUE)]
    assert bench.rows("SELECT failures, node FROM jobs WHERE state = 'IN_QUEUE'") == [(0, None)]
    (again,) = bench.claim(12.0, bench.slot())
    assert (again.job, again.attempt) == (second.job, 2)


def test_what_hello_holds_goes_on_from_the_queue(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.requeue(15.0)
    bench.node("n1", 16.0)
    found = bench.reconcile(16.0, [bench.key(claimed)])
    assert found.keep == (bench.key(claimed),)
    assert [one.state for one in found.changed] == [JobState.IN_PROGRESS]
    assert bench.claim(16.0, bench.slot()) == ()
    assert bench.view(16.0, claimed.job).attempt == 1


def test_what_was_cancelled_or_reclaimed_must_stop(bench: Any) -> None:
    cancelled, reclaimed = bench.running(10.0), bench.running(11.0)
    bench.cancel(12.0, cancelled.job)
    bench.requeue(13.0)
    bench.node("n2", 14.0)
    bench.claim(14.0, bench.slot("n2"))
    bench.node("n1", 15.0)
    held = (bench.key(cancelled), bench.key(reclaimed))
    assert bench.reconcile(15.0, held).stop == held


def test_a_superseded_hello_keeps_nothing(bench: Any) -> None:
    claimed = bench.running(10.0)
    old = bench.sessions["n1"]
    bench.node("n1", 11.0)
    bench.sessions["n1"] = old
    found = bench.reconcile(12.0, [bench.key(claimed)])
    assert (found.keep, found.stop, found.changed) == ((), (bench.key(claimed),), ())


def lose(bench: Any, silent_before: float, now: float) -> tuple[Any, ...]:
    lost, changed = bench.do(lambda conn: store.lost_nodes(conn, silent_before, now))
    assert set(lost.items()) <= set(bench.sessions.items())
    return tuple(changed)


def test_a_silent_node_loses_its_jobs_and_its_session(bench: Any) -> None:
    claimed = bench.running(10.0)
    session = bench.sessions["n1"]
    bench.do(lambda conn: store.touch_node(conn, "n1", session, 50.0))
    assert lose(bench, 50.0, 110.0) == ()
    (changed,) = lose(bench, 50.1, 110.1)
    assert (changed.job, changed.state) == (claimed.job, JobState.IN_QUEUE)
    assert not bench.do(lambda conn: store.touch_node(conn, "n1", session, 111.0))
    assert bench.claim(111.0, bench.slot()) == ()
    assert lose(bench, 60.0, 120.0) == ()


def test_any_report_renews_the_lease(bench: Any) -> None:
    bench.running(10.0)
    bench.report(100.0)
    assert lose(bench, 99.0, 159.0) == ()


def test_jobs_of_a_node_that_left_are_found_by_silence(bench: Any) -> None:
    claimed = bench.running(10.0)
    session = bench.sessions["n1"]
    bench.do(lambda conn: store.close_session(conn, "n1", session, 11.0))
    assert [one.job for one in lose(bench, 60.0, 120.0)] == [claimed.job]


def test_a_broken_stream_that_came_back_loses_nothing(bench: Any) -> None:
    claimed = bench.running(10.0)
    old = bench.sessions["n1"]
    bench.node("n1", 12.0)
    assert bench.do(lambda conn: store.requeue_node(conn, "n1", old, 15.0, "its stream broke")) == ()
    assert bench.view(15.0, claimed.job).state is JobState.IN_PROGRESS


def test_a_lost_node_does_not_count_for_what_lay_ahead_and_may_still_end_it(bench: Any) -> None:
    runs, waits = bench.running(10.0), bench.running(10.0)
    for _ in range(2):
        bench.requeue(15.0, ahead=[bench.key(waits)])
        bench.node("n1", 16.0)
        assert bench.reconcile(16.0, [bench.key(waits)]).keep == (bench.key(waits),)
    bench.requeue(20.0, ahead=[bench.key(waits)])
    bench.node("n2", 21.0)
    claimed = {one.job: one for one in bench.claim(21.0, bench.slot("n2", 2))}
    assert claimed[waits.job].attempt == 2
    late = bench.report(22.0, Outcome(waits.job, 1, "w1", "completed", b"1"))
    assert late.stale == (bench.key(waits),)
    assert dict(bench.rows("SELECT id, failures FROM jobs")) == {runs.job: 1, waits.job: 0}


def test_the_third_lost_node_ends_the_job(bench: Any) -> None:
    bench.submit(10.0)
    for at in (20.0, 30.0, 40.0):
        bench.node("n1", at)
        (claimed,) = bench.claim(at, bench.slot())
        (changed,) = bench.requeue(at + 5.0)
    assert changed.state is JobState.FAILED
    assert changed.view.error == "node n1 was lost: its stream broke; gave up after 3 attempts"
    assert changed.view.execution_ms == 0
    assert changed.losers == ("echo/job-1/1/", "echo/job-1/2/", "echo/job-1/3/")
    assert bench.counters() == {"failed": 1, "retried": 2}
    assert bench.report(50.0, bench.done(claimed)).changed == ()
