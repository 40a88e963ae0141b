"""The outbox of webhooks: one row for each end of a job that has one, and what happens to it."""

from __future__ import annotations

import base64
from typing import Any

from stoker.control import store
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import Delivery
from stoker.control.store.jobs.webhook_outbox import delivery_id
from stoker.outbound.wait_limits import Waiter
from stoker.wire.messages import Ref

URL = "https://caller.example/hook"
INPUT = Ref("echo/job-1/input.json", 2_000_000, "ab")
OUTPUT = Ref("echo/job-1/1/output.json", 2_000_000, "cd")


def due(bench: Any, now: float = 1e6, limit: int = 10) -> tuple[Delivery, ...]:
    found: list[Delivery] = []
    while len(found) < limit:
        due_now = store.due_webhook(bench.store.writer, now, {one.id for one in found})
        if due_now is None:
            break
        found.append(due_now)
    return tuple(found)


def tried(bench: Any, delivery: Delivery, now: float, delivered: bool) -> None:
    bench.do(lambda conn: store.webhook_tried(conn, delivery.id, now, delivered))


def next_at(bench: Any) -> float | None:
    return store.next_webhook_at(bench.store.writer)


def running(bench: Any, now: float = 10.0, **fields: Any) -> Any:
    return bench.running(now, webhook=URL, **fields)


# ---- every end --------------------------------------------------------------------------------------


def test_each_reported_end_is_noted_with_its_record(bench: Any) -> None:
    for end in ("completed", "failed", "timed_out", "cancelled"):
        claimed = running(bench)
        error = None if end == "completed" else "no"
        bench.report(11.5, bench.done(claimed, end=end, output=b"[1]", error=error, wait_ms=3))
        (due_now,) = due(bench)
        view = bench.view(12.0, claimed.job)
        shown = due_now.view
        assert (shown.id, shown.state, shown.output, shown.error) == (
            view.id,
            view.state,
            view.output,
            view.error,
        )
        assert (shown.delay_ms, shown.execution_ms, shown.worker) == (3, 7, "w1")
        assert (shown.created_at, shown.webhook, due_now.url, due_now.tries) == (10.0, URL, URL, 0)
        assert (due_now.input, due_now.input_ref) == (b'{"x":1}', None)
        assert due_now.id == delivery_id(claimed.job, 1, view.state, 11.5)
        tried(bench, due_now, 12.0, True)


def test_a_job_that_times_out_in_the_queue_twice_is_reported_twice(bench: Any) -> None:
    """Its caller's wait was over, it was tried again, and nobody took it before that wait was over, too."""
    job = bench.submit(10.0, webhook=URL)[0].id
    bench.end_wait(20.0, job)
    assert bench.retry(21.0, job)[1] is not None
    bench.end_wait(30.0, job)
    ids = [row[0] for row in bench.rows("SELECT id FROM webhooks")]
    assert len(set(ids)) == 2


def test_a_job_without_a_webhook_notes_nothing(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed))
    bench.submit(12.0)
    bench.purge(13.0, bench.newest())
    assert due(bench) == ()
    assert next_at(bench) is None


def test_cancel_purge_and_giving_up_are_noted(bench: Any) -> None:
    given_up = running(bench, max_attempts=1)
    bench.requeue(11.0)
    for _ in range(2):
        bench.submit(12.0, webhook=URL)
    bench.cancel(13.0, "job-2")
    bench.purge(14.0, bench.newest())
    first, second, third = due(bench)
    lost = "node n1 was lost: its stream broke; gave up after 1 attempt"
    assert (first.view.id, first.view.state, first.view.error) == (given_up.job, JobState.FAILED, lost)
    assert (second.view.id, second.view.state, second.view.reason) == ("job-2", JobState.CANCELLED, None)
    assert (third.view.id, third.view.state, third.view.reason) == ("job-3", JobState.CANCELLED, "purged")
    assert second.view.delay_ms == 1_000


def test_a_try_that_is_followed_by_another_is_no_end(bench: Any) -> None:
    claimed = running(bench)
    bench.report(11.0, bench.lost(claimed))
    bench.cancel(12.0, claimed.job)
    late = bench.done(claimed)
    bench.report(13.0, late, late)
    bench.cancel(14.0, claimed.job)
    assert [one.view.state for one in due(bench)] == [JobState.CANCELLED]


def test_a_ttl_that_passes_is_no_end(bench: Any) -> None:
    running(bench, expires_at=20.0)
    bench.expire(20.0)
    assert due(bench) == ()


def test_each_end_of_a_retried_job_is_reported_under_an_id_of_its_own(bench: Any) -> None:
    claimed = running(bench)
    bench.report(11.0, bench.done(claimed, end="failed", error="no"))
    bench.retry(12.0, claimed.job)
    (again,) = bench.claim(13.0, bench.slot())
    bench.report(14.0, bench.done(again, output=b"2"))
    first, second = due(bench)
    assert (first.view.state, first.view.error, first.view.retries) == (JobState.FAILED, "no", 0)
    assert (second.view.state, second.view.output, second.view.retries) == (JobState.COMPLETED, b"2", 1)
    assert first.id != second.id


# ---- delivery ---------------------------------------------------------------------------------------


def test_three_tries_ten_seconds_apart_then_it_goes(bench: Any) -> None:
    claimed = running(bench)
    bench.report(11.0, bench.done(claimed))
    (due_now,) = due(bench, 11.0)
    assert next_at(bench) == 11.0
    tried(bench, due_now, 12.0, False)
    assert due(bench, 21.9) == ()
    assert next_at(bench) == 22.0
    (again,) = due(bench, 22.0)
    assert (again.id, again.tries) == (due_now.id, 1)
    tried(bench, again, 23.0, False)
    (last,) = due(bench, 33.0)
    assert last.tries == 2
    tried(bench, last, 34.0, False)
    assert (due(bench), next_at(bench)) == ((), None)
    tried(bench, last, 35.0, True)  # a second answer changes nothing


def test_the_oldest_is_due_first(bench: Any) -> None:
    for at in (10.0, 12.0, 11.0):
        bench.submit(at, webhook=URL)
        bench.cancel(at, f"job-{bench.drawn}")
    assert [one.view.id for one in due(bench, limit=2)] == ["job-1", "job-3"]


# ---- what outlives the job --------------------------------------------------------------------------


def spilled(bench: Any) -> Any:
    """A job that failed, and both of its payloads were too long for a row."""
    claimed = running(bench, input=None, input_ref=INPUT, retention_s=60.0)
    bench.report(11.0, bench.done(claimed, end="failed", error="no", output_ref=OUTPUT))
    return claimed


def test_the_row_and_what_it_names_outlive_the_record(bench: Any) -> None:
    spilled(bench)
    bench.expire(71.0)
    assert bench.rows("SELECT * FROM jobs") == []
    (due_now,) = due(bench)
    assert (due_now.input_ref, due_now.view.output_ref) == (INPUT, OUTPUT)
    assert bench.due_orphans() == ()
    tried(bench, due_now, 72.0, True)
    assert sorted(bench.due_orphans()) == [OUTPUT.key, INPUT.key]


def test_what_the_record_names_still_stays_when_the_row_goes(bench: Any) -> None:
    spilled(bench)
    (due_now,) = due(bench)
    tried(bench, due_now, 12.0, True)
    assert bench.due_orphans() == ()
    bench.expire(71.0)
    assert sorted(bench.due_orphans()) == [OUTPUT.key, INPUT.key]


def test_the_row_is_as_the_job_ended_though_it_is_tried_again(bench: Any) -> None:
    claimed = spilled(bench)
    bench.retry(12.0, claimed.job)
    assert bench.due_orphans() == ()
    (again,) = bench.claim(13.0, bench.slot())
    (changed,) = bench.report(14.0, bench.done(again)).changed
    assert changed.losers == ()  # the first attempt's output is to be told yet
    first, second = due(bench)
    assert (first.view.state, first.view.output_ref) == (JobState.FAILED, OUTPUT)
    tried(bench, first, 15.0, False)
    tried(bench, first, 16.0, False)
    tried(bench, first, 17.0, False)
    assert bench.due_orphans() == (OUTPUT.key,)
    bench.expire(74.0)
    assert bench.due_orphans() == (OUTPUT.key,)  # the other webhook names the input
    tried(bench, second, 75.0, True)
    assert sorted(bench.due_orphans()) == [OUTPUT.key, INPUT.key]


# ---- the secret -------------------------------------------------------------------------------------


def test_the_secret_is_made_once_and_sealed(bench: Any) -> None:
    made = bench.do(store.webhook_secret)
    kind, _, secret = made.partition("_")
    assert (kind, len(base64.b64decode(secret))) == ("whsec", 24)
    assert bench.do(store.webhook_secret) == made
    ((sealed,),) = bench.rows("SELECT value FROM meta WHERE name = 'webhook_secret'")
    assert secret.encode() not in bytes(sealed)


def test_a_new_secret_signs_beside_the_one_before_until_that_is_dropped(bench: Any) -> None:
    assert store.webhook_secrets(bench.store.writer) == ()
    assert not bench.do(store.drop_webhook_secret)
    old = bench.do(store.webhook_secret)
    new = bench.do(store.rotate_webhook_secret)
    assert new not in (None, old)
    assert bench.do(store.webhook_secret) == new
    assert store.webhook_secrets(bench.store.writer) == (new, old)
    assert bench.do(store.rotate_webhook_secret) is None, "the oldest has receivers still"
    assert store.webhook_secrets(bench.store.writer) == (new, old)
    for dropped in (True, False):
        assert bench.do(store.drop_webhook_secret) == dropped
        assert store.webhook_secrets(bench.store.writer) == (new,)
    assert old.encode() not in repr(bench.rows("SELECT value FROM meta")).encode()


def test_those_under_way_are_not_given_again_and_one_that_cannot_be_tried_lets_others_go_first(
    bench: Any,
) -> None:
    for at in (10.0, 11.0, 12.0):
        bench.submit(at, webhook=URL)
        bench.cancel(at, f"job-{bench.drawn}")
    first, second, third = due(bench)
    read = bench.store.writer
    assert store.due_webhook(read, 1e6, {first.id}) == second
    assert store.due_webhook(read, 1e6, {first.id, second.id}) == third
    assert store.due_webhook(read, 1e6, {first.id, second.id, third.id}) is None
    bench.do(lambda conn: store.webhook_later(conn, first.id, 20.0))
    assert [due_now.id for due_now in due(bench, 1e6)] == [second.id, third.id, first.id]
    assert [due_now.tries for due_now in due(bench, 1e6)] == [0, 0, 0]
    assert len(due(bench, 19.9)) == 2


def test_of_receivers_that_are_full_none_is_given(bench: Any) -> None:
    for url in (URL, "https://Other.example:8443/a?b", URL):
        bench.submit(10.0, webhook=url)
        bench.cancel(10.0 + bench.drawn, f"job-{bench.drawn}")
    first, other, last = due(bench)
    key, name = "", "echo"
    theirs, others = (Waiter("default", key, name, host) for host in ("caller.example", "other.example:8443"))
    assert [due_now.whose for due_now in (first, other, last)] == [theirs, others, theirs]
    read = bench.store.writer
    assert store.due_webhook(read, 1e6, (), lambda _: [(key, name, "caller.example")]) == other
    assert store.due_webhook(read, 1e6, {first.id}, lambda _: [(key, name, "other.example:8443")]) == last
    both = [(key, name, "other.example:8443"), (key, name, "caller.example")]
    for left_out in (both, [(key,)], [(key, name)]):
        assert store.due_webhook(read, 1e6, (), lambda _, groups=left_out: groups) is None
    for left_out in ([("other-key",)], [(key, "other")]):
        assert store.due_webhook(read, 1e6, (), lambda _, groups=left_out: groups) == first
    assert store.due_webhook(read, 1e6, (), lambda account: None if account == "default" else ()) is None
