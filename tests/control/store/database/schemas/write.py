"""Writes the tables of the Stoker on the path, with a few rows, as one JSON text: the fixture of a release.

    PYTHONPATH=src python -P tests/control/store/database/schemas/write.py > …/schemas/VERSION.json

Run it with the release's own checkout: its functions store the rows. `database` tests what becomes of them.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from stoker.control import store
from stoker.control.rules.billing import Charge
from stoker.control.rules.types import Claimed, Endpoint, EndpointVersion, NewJob, Slot
from stoker.control.store.billing.bills import Payer, add_to_bill
from stoker.control.store.database.commits import run_batch
from stoker.control.store.database.secrets import Encryption
from stoker.control.store.resources import keys
from stoker.control.store.tables.schema import SCHEMA_VERSION, metadata
from stoker.wire.messages import Outcome, Report, Span

KEY = "A" * 43 + "="
NOW = 1_000.0
T = TypeVar("T")


def written() -> dict[str, Any]:
    opened = store.open_store(":memory:", secrets=Encryption(KEY), now=NOW)
    tokens = _fill(opened)
    rows = {
        table.name: [_plain(row) for row in opened.writer.execute(sqlalchemy.select(table)).mappings()]
        for table in metadata.sorted_tables
    }
    opened.close()
    return {
        "version": SCHEMA_VERSION,
        "secret_key": KEY,
        "tokens": tokens,
        "tables": {"sqlite": _ddl(sqlite.dialect()), "postgresql": _ddl(postgresql.dialect())},
        "rows": {name: found for name, found in rows.items() if found},
    }


def _ddl(dialect: Any) -> list[str]:
    tables = metadata.sorted_tables
    made = [*map(CreateTable, tables)]
    made += [CreateIndex(i) for t in tables for i in sorted(t.indexes, key=lambda i: str(i.name))]
    return [" ".join(str(one.compile(dialect=dialect)).split()) for one in made]


def _plain(row: Any) -> dict[str, Any]:
    """Bytes as base64 in an object of their own."""
    return {
        name: {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in row.items()
        if value is not None
    }


def _fill(opened: store.Store) -> dict[str, str]:
    """An endpoint with a secret in its env, a node, jobs in three states, keys, bills, and a webhook."""

    def do(work: Callable[[store.Conn], T]) -> T:
        ((value, error),) = run_batch(opened.writer, [work])
        if error is not None:
            raise error
        return value

    run = EndpointVersion("handlers/echo.py:handler", env={"TOKEN": "of-the-handler"})
    do(lambda conn: store.put_endpoint(conn, Endpoint("echo", "default", "echo", 0, run), NOW))
    session = do(
        lambda conn: store.open_session(
            conn, node="n1", boot="b1", name="n1", devices=(), facts={}, now=NOW, lease_s=60.0
        )
    )
    assert isinstance(session, int)
    slot = Slot("echo", "n1", session, "w1", 1)
    ended = _submit(do, "ended", slot, webhook="https://receiver.example/hook")
    _submit(do, "running", slot)
    _submit(do, "waiting")
    spans = (Span("execution", "ms", 7, 700),)
    outcome = Outcome("ended", ended[0].attempt, "w1", "completed", b'{"ok":1}', execution_ms=7, spans=spans)
    do(
        lambda conn: store.apply_reports(
            conn, node="n1", session=session, reports=[Report(1, outcome)], now=NOW + 2
        )
    )
    do(lambda conn: add_to_bill(conn, Payer("default", "endpoint", "echo", "w1"), 0, Charge(7_000, 90_000)))
    do(lambda conn: store.put_secret(conn, "default", "hub", "of-the-hub", NOW))
    _, key = do(lambda conn: keys.create_key(conn, name="laptop", now=NOW))
    _, join = do(lambda conn: keys.create_join_token(conn, name="hosts", now=NOW, uses=3))
    return {"key": key, "join": join, "webhook_secret": do(store.webhook_secret)}


def _submit(do: Callable[..., Any], job: str, *slots: Slot, **fields: Any) -> tuple[Claimed, ...]:
    new = NewJob(
        id=job,
        account="default",
        endpoint="echo",
        created_at=NOW,
        expires_at=NOW + 86_400,
        execution_timeout_ms=600_000,
        sync=False,
        input=b'{"x":1}',
        **fields,
    )
    submitted = do(lambda conn: store.submit(conn, new, slots, NOW + 1))
    return tuple(submitted.claimed)


if __name__ == "__main__":
    json.dump(written(), sys.stdout, indent=1)
    print()
