"""The audit log in both databases."""

from __future__ import annotations

from typing import Any

from stoker.control import store
from stoker.control.rules.types import AuditLine


def test_a_line_is_begun_ended_listed_and_forgotten(bench: Any) -> None:
    first, second = (
        bench.do(lambda conn, at=at: store.begin_audit(conn, "default", "k1", at, "POST", "/v1/pods"))
        for at in (1.0, 2.0)
    )
    bench.do(lambda conn: store.end_audit(conn, first, 400, "name is required and missing"))
    ended = AuditLine(first, 1.0, "k1", "POST", "/v1/pods", 400, "name is required and missing")
    begun = AuditLine(second, 2.0, "k1", "POST", "/v1/pods", None, "")
    conn = bench.store.writer
    assert store.list_audit(conn, "default", limit=9) == (begun, ended)
    assert store.list_audit(conn, "default", limit=1) == (begun,)
    assert store.list_audit(conn, "default", limit=9, before=second) == (ended,)
    assert store.list_audit(conn, "default", limit=9, since=1.5) == (begun,)
    assert store.list_audit(conn, "another", limit=9) == ()
    assert bench.do(lambda conn: store.sweep_audit(conn, 2.0, 100)) == 1
    assert bench.do(lambda conn: store.sweep_audit(conn, 2.0, 100)) == 0
    assert store.list_audit(conn, "default", limit=9) == (begun,)
