"""Brings the tables of an earlier version of Stoker up to this one's, when the store is opened.

    8 ── jobs.backoffs ──> 9 ── the key of jobs and webhooks ──> 10
    10 ── quotas, the times of logs' lines, jobs.traceparent ──> 11 ── saves ──> 12
    12 ── classes and deadlines of jobs ──> 13 ── cases ──> 14 ── attempts ──> 15

Columns are added, each with a default that is true of the rows that are there, and tables and indexes: no
row is written, and a process of the earlier version that has the tables open works on. There is no way back,
and none from a version before the first one here. `schema.WORKS_FROM` says which Stoker works with the tables
afterwards.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy
from msgspec import Struct
from sqlalchemy import Column, Index, Table
from sqlalchemy.schema import CreateColumn

from stoker.control.store.tables.accounts import keys
from stoker.control.store.tables.billing import gpu_days
from stoker.control.store.tables.jobs import attempts, cases, chunks, jobs, logs, saves, webhooks
from stoker.control.store.tables.resources import endpoints
from stoker.control.store.tables.schema import SCHEMA_VERSION

ADDED: dict[int, tuple[Column[Any] | Index | Table, ...]] = {
    8: (jobs.c.backoffs,),
    9: (jobs.c.api_key, webhooks.c.api_key, webhooks.c.endpoint),
    10: (
        *(
            keys.c.quota,
            endpoints.c.quota,
            endpoints.c.api_key,
            jobs.c.metered,
            jobs.c.traceparent,
            logs.c.times,
        ),
        *(index for index in jobs.indexes if index.name == "jobs_metered"),
        gpu_days,
    ),
    11: (jobs.c.stream_attempt, jobs.c.held_from, jobs.c.began_anew, saves),
    12: (
        *(jobs.c.urgent, jobs.c.late_at, jobs.c.deadline, jobs.c.yields, jobs.c.yielded_at, keys.c.priority),
        *(index for index in jobs.indexes if index.name == "jobs_demand"),
        *(index for index in jobs.indexes if index.name == "jobs_late"),
    ),
    13: (endpoints.c.keep_cases, cases),
    14: (jobs.c.uploading_at, chunks.c.stored_at, attempts),
}
"""The columns, indexes and tables that each version lacks, compared with the next version, in the order in
which they are made."""


class Upgrade(Struct, frozen=True):
    """Tables that were brought up. `added` names columns, as `jobs.backoffs`, indexes and tables."""

    found: int
    wanted: int
    added: tuple[str, ...]

    def __str__(self) -> str:
        return f"from schema version {self.found} to {self.wanted}: added {', '.join(self.added)}"


def upgrade(sql: sqlalchemy.Connection, found: int) -> Upgrade | None:
    """Upgrades the tables in the caller's transaction. Returns None, and changes nothing, where no way leads
    from version `found`."""
    steps = range(found, SCHEMA_VERSION)
    if not steps or not all(version in ADDED for version in steps):
        return None
    parts = [part for version in steps for part in ADDED[version]]
    for part in parts:
        if isinstance(part, Column):
            declared = CreateColumn(part).compile(dialect=sql.dialect)
            sql.exec_driver_sql(f"ALTER TABLE {part.table.name} ADD COLUMN {declared}")
        else:
            part.create(sql)
    return Upgrade(found, SCHEMA_VERSION, tuple(map(str, parts)))
