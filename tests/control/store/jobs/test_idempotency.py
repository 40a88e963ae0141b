"""Idempotency keys: one job for a day, whatever becomes of it; and no two requests under one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from stoker.control import store
from stoker.control.errors import KeyReused
from stoker.control.rules.job_states import JobState
from stoker.control.rules.submissions import Once
from stoker.control.rules.types import NewJob
from stoker.control.store.database.commits import run_batch

KEY = Once("order-7", b"\x00" * 32)
OTHER = Once("order-7", b"\x01" * 32)
DAY_S = 86_400.0


def new(job: str, once: Once = KEY, **fields: Any) -> NewJob:
    values = {"account": "default", "endpoint": "echo", "created_at": 10.0, "expires_at": 9e4, "once": once}
    return NewJob(**({"id": job, "execution_timeout_ms": 5_000, "sync": False} | values | fields))


def put(bench: Any, now: float, job: NewJob, *slots: Any) -> Any:
    return bench.do(lambda conn: store.submit(conn, job, slots, now))


def test_the_same_request_twice_is_one_job(bench: Any) -> None:
    first = put(bench, 10.0, new("a"))
    second = put(bench, 11.0, new("b"), bench.slot())
    assert (first.repeated, second.repeated) == (False, True)
    assert (second.view, second.claimed) == (first.view, ())
    assert bench.rows("SELECT id FROM jobs") == [("a",)]
    assert bench.rows("SELECT count(*) FROM inputs") == [(1,)]


def test_a_repetition_sees_the_job_as_it_is_now(bench: Any) -> None:
    claimed = bench.running(10.0, once=KEY)
    bench.report(11.0, bench.done(claimed, output=b"1"))
    assert put(bench, 12.0, new("b")).view == bench.view(12.0, claimed.job)


def test_both_in_one_batch_are_one_job(bench: Any) -> None:
    fns = [partial(store.submit, new=new(job), slots=(), now=10.0) for job in ("a", "b")]
    (first, _), (second, _) = run_batch(bench.store.writer, fns)
    assert (first.view.id, second.view.id) == ("a", "a")
    assert second.repeated


def test_another_request_under_a_known_key_is_refused_and_harms_nobody(bench: Any) -> None:
    put(bench, 10.0, new("a"))
    fns = [
        partial(store.submit, new=job, slots=(), now=11.0)
        for job in (new("b", OTHER), new("c", Once("x", b"")))
    ]
    (_, refused), (stored, error) = run_batch(bench.store.writer, fns)
    assert isinstance(refused, KeyReused)
    assert "'order-7' came with another request" in str(refused)
    assert (stored.view.id, error) == ("c", None)
    assert bench.rows("SELECT id FROM jobs ORDER BY seq") == [("a",), ("c",)]


def test_a_key_is_its_accounts_and_endpoints_own(bench: Any) -> None:
    bench.put_endpoint("other")
    bench.do(lambda conn: conn.run("INSERT INTO accounts (id, created_at) VALUES ('someone', 0)", {}))
    put(bench, 10.0, new("a"))
    assert not put(bench, 10.0, new("b", OTHER, endpoint="other")).repeated
    assert not put(bench, 10.0, new("c", OTHER, account="someone")).repeated


def test_a_key_outlives_the_record_and_names_the_job_still(bench: Any) -> None:
    put(bench, 10.0, new("a", expires_at=20.0))
    bench.expire(20.0)
    again = put(bench, 30.0, new("b"))
    assert again.repeated
    assert (again.view.id, again.view.state, again.view.created_at) == ("a", JobState.IN_QUEUE, 10.0)
    assert bench.rows("SELECT id FROM jobs") == []


def test_after_a_day_the_key_is_free(bench: Any) -> None:
    put(bench, 10.0, new("a"))
    assert put(bench, 9.9 + DAY_S, new("b")).view.id == "a"
    assert put(bench, 10.0 + DAY_S, new("c", OTHER)).view.id == "c"
    assert put(bench, 11.0 + DAY_S, new("d", OTHER)).view.id == "c"


def test_expired_keys_are_swept_a_batch_at_a_time(bench: Any) -> None:
    for number in range(5):
        put(bench, 10.0 + number, new(f"j{number}", Once(f"k{number}", b"")))
    bench.expire(12.0 + DAY_S, 2)
    assert bench.rows("SELECT key FROM idempotency ORDER BY key") == [("k2",), ("k3",), ("k4",)]
    bench.expire(12.0 + DAY_S, 2)
    assert bench.rows("SELECT key FROM idempotency ORDER BY key") == [("k3",), ("k4",)]


def test_a_submission_that_fails_leaves_its_key_free(bench: Any) -> None:
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        put(bench, 10.0, new("a", endpoint="nowhere"))
    assert bench.rows("SELECT * FROM idempotency") == []
