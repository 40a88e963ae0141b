"""Registry auths, named secrets and network volumes in the store: the same in both kinds of database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update

from stoker.control import store
from stoker.control.store.resources.volumes import REMEMBERED_S, Volume
from stoker.control.store.tables.resources import volumes
from stoker.wire.messages import RegistryAuth, Report, VolumeUsed

VOLUME = Volume("v1", "default", "data", "EU-RO-1", 50, 100.0)
LOGIN = RegistryAuth("me", "hunter2")


def test_a_registry_auth_is_its_accounts_and_sealed(bench: Any) -> None:
    conn, made = bench.store.writer, store.Registry("r1", "mine")
    bench.do(lambda conn: store.add_registry(conn, "default", made, LOGIN, 1.0))
    assert store.list_registries(conn, "default") == (made,)
    assert store.list_registries(conn, "another") == ()
    assert store.registry_login(conn, "default", "r1") == LOGIN
    assert store.registry_login(conn, "another", "r1") is None
    assert "hunter2" not in repr(bench.rows("SELECT * FROM registries"))
    assert not bench.do(lambda conn: store.remove_registry(conn, "another", "r1"))
    assert bench.do(lambda conn: store.remove_registry(conn, "default", "r1"))


def test_a_secret_is_changed_in_its_place_and_sealed(bench: Any) -> None:
    conn = bench.store.writer
    first = bench.do(lambda conn: store.put_secret(conn, "default", "db", "hunter2", 1.0))
    again = bench.do(lambda conn: store.put_secret(conn, "default", "db", "hunter3", 2.0))
    assert first == store.NamedSecret("db", 1.0, 1.0)
    assert store.list_secrets(conn, "default") == (again,) == (store.NamedSecret("db", 1.0, 2.0),)
    assert store.read_secrets(conn) == {"default": {"db": "hunter3"}}
    assert "hunter" not in repr(bench.rows("SELECT * FROM secrets"))
    assert not bench.do(lambda conn: store.remove_secret(conn, "another", "db"))
    assert bench.do(lambda conn: store.remove_secret(conn, "default", "db"))


def test_a_volume_is_measured_by_reports_until_it_is_deleted(bench: Any) -> None:
    conn, session = bench.store.writer, bench.node("n1", 1.0)

    def report(used: VolumeUsed, now: float) -> None:
        reports = [Report(1, used)]
        bench.do(lambda conn: store.apply_reports(conn, node="n1", session=session, reports=reports, now=now))

    bench.do(lambda conn: store.add_volume(conn, VOLUME))
    report(VolumeUsed("v1", 7), 200.0)
    report(VolumeUsed("v1", 0, gone=True), 250.0)  # of a folder; the record's end is not for nodes to say
    found = store.get_volume(conn, "default", "v1")
    assert found is not None
    assert (found.used_bytes, found.measured_at) == (7, 200.0)
    assert store.get_volume(conn, "another", "v1") is None
    bench.do(lambda conn: store.delete_volume(conn, "v1", 300.0))
    report(VolumeUsed("v1", 9), 400.0)
    assert store.get_volume(conn, "default", "v1") is None
    (kept,) = store.list_volumes(conn)
    assert (kept.used_bytes, kept.deleted_at) == (7, 300.0)


def test_a_volume_is_forgotten_when_its_month_is_over_and_its_bill_written(bench: Any) -> None:
    def left(now: float) -> int:
        bench.do(lambda conn: store.forget_volumes(conn, now))
        return len(store.list_volumes(bench.store.writer))

    bench.do(lambda conn: store.add_volume(conn, VOLUME))
    assert left(1e9) == 1
    bench.do(lambda conn: store.delete_volume(conn, "v1", 300.0))
    assert left(1e9) == 1
    bench.do(lambda conn: conn.execute(update(volumes).values(billed_to=299.0)).rowcount)
    assert left(1e9) == 1
    bench.do(lambda conn: conn.execute(update(volumes).values(billed_to=300.0)).rowcount)
    assert left(299.0 + REMEMBERED_S) == 1
    assert left(300.0 + REMEMBERED_S) == 0
