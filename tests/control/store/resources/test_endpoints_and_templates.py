"""Templates in the store, versions of endpoints, and what becomes of the jobs of one that is deleted."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stoker.control import store
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import Template
from stoker.wire.messages import LockedWeights, WeightsFile

ACCOUNT, E = "default", "echo"
ENV = {"TOKEN": "hunter2"}
MADE = Template("t1", ACCOUNT, "one", {"name": "one", "imageName": "a/b:1", "env": ENV}, created_at=5.0)


def test_a_template_is_kept_changed_and_taken_away(bench: Any) -> None:
    bench.do(lambda conn: store.put_template(conn, MADE, 5.0))
    changed = replace(MADE, name="two", fields={**MADE.fields, "name": "two"})
    bench.do(lambda conn: store.put_template(conn, changed, 6.0))
    assert bench.do(lambda conn: store.get_template(conn, "t1")) == changed
    assert bench.do(store.list_templates) == (changed,)
    assert bench.do(lambda conn: store.named_template(conn, ACCOUNT, "one")) is None
    assert bench.do(lambda conn: store.named_template(conn, ACCOUNT, "two")) == changed
    assert bench.do(lambda conn: store.named_template(conn, "someone", "two")) is None

    bench.do(lambda conn: store.remove_template(conn, "t1", 7.0))
    assert bench.do(lambda conn: store.get_template(conn, "t1")) is None
    assert bench.do(store.list_templates) == ()


def test_what_a_template_holds_is_sealed_and_goes_with_it(bench: Any) -> None:
    bench.do(lambda conn: store.put_template(conn, MADE, 5.0))
    ((body,),) = bench.rows("SELECT body FROM templates")
    assert b"hunter2" not in bytes(body)
    assert b"hunter2" in bench.store.writer.secrets.open(bytes(body))
    bench.do(lambda conn: store.remove_template(conn, "t1", 7.0))
    ((body,),) = bench.rows("SELECT body FROM templates")
    assert bench.store.writer.secrets.open(bytes(body)) == b"{}"


def test_a_version_may_be_new_where_the_same_is_run(bench: Any) -> None:
    (first,) = bench.do(store.list_endpoints)
    same = bench.do(lambda conn: store.put_endpoint(conn, first, 5.0))
    anew = bench.do(lambda conn: store.put_endpoint(conn, first, 6.0, anew=True))
    assert (first.version, same.version, anew.version) == (1, 1, 2)
    assert bench.do(store.list_endpoints) == (anew,)


def test_a_version_keeps_the_weights_that_its_workers_need(bench: Any) -> None:
    (first,) = bench.do(store.list_endpoints)
    files = (
        WeightsFile("model.safetensors", 7, "ab" * 32),
        WeightsFile("vae.json", source="folder", name="v"),
    )
    run = replace(first.run, weights=(LockedWeights("flux", "huggingface:a/b", "c0ffee", files),))
    bench.do(lambda conn: store.put_endpoint(conn, replace(first, run=run), 5.0))
    (found,) = bench.do(store.list_endpoints)
    assert (found.version, found.run) == (2, run)


def test_all_open_jobs_of_a_deleted_endpoint_end_and_no_others(bench: Any) -> None:
    bench.put_endpoint("other")
    ended = bench.running(1.0)
    bench.report(2.0, bench.done(ended))
    running = bench.running(3.0)
    bench.submit(4.0)
    bench.submit(4.0)
    bench.submit(4.0, endpoint="other")

    first = bench.do(lambda conn: store.cancel_all(conn, E, 5.0, 2))
    assert {one.job: one.cancel for one in first} == {
        running.job: ("n1", bench.key(running)),
        "job-3": None,
    }
    assert len(bench.do(lambda conn: store.cancel_all(conn, E, 5.0, 2))) == 1
    assert bench.do(lambda conn: store.cancel_all(conn, E, 5.0, 2)) == ()
    seen = bench.view(6.0, running.job)
    assert seen is not None
    assert (seen.state, seen.reason) == (JobState.CANCELLED, "the endpoint was deleted")
    kept = bench.view(6.0, ended.job)
    assert kept is not None
    assert kept.state is JobState.COMPLETED
    assert bench.rows("SELECT state FROM jobs WHERE endpoint = 'other'") == [("IN_QUEUE",)]


def test_one_of_the_file_may_be_deleted_for_good_and_come_back(bench: Any) -> None:
    bench.submit(1.0)
    assert bench.do(lambda conn: store.remove_endpoint(conn, E, 2.0, for_good=True))
    assert bench.do(store.deleted_endpoints) == (E,)
    bench.put_endpoint(E)
    assert bench.do(store.deleted_endpoints) == ()
    bench.do(lambda conn: store.remove_endpoint(conn, E, 3.0))
    assert bench.do(store.deleted_endpoints) == (), "the file may declare it again"


def test_deleted_ones_are_known_by_their_open_jobs(bench: Any) -> None:
    bench.put_endpoint("made", origin="api")
    bench.put_endpoint("idle", origin="api")
    bench.submit(1.0, endpoint="made")
    bench.submit(1.0)
    assert bench.do(store.deleted_endpoints) == ()
    for name in ("made", "idle", E):
        bench.do(lambda conn, name=name: store.remove_endpoint(conn, name, 2.0))
    assert bench.do(store.deleted_endpoints) == ("made",), "the file may declare the other again"
    bench.do(lambda conn: store.cancel_all(conn, "made", 3.0, 10))
    assert bench.do(store.deleted_endpoints) == ()
