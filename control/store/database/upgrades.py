"""Brings the tables of an earlier version of Stoker up to this one's, when the store is opened.

    version 8 ── jobs.backoffs ──> version 9 ── the key of jobs and webhooks ──> version 10
    version 10 ── jobs.traceparent ──> version 11

Columns are added, each with a default that is true of the rows that are there: no row is written, and a
process of the earlier version that has the tables open works on. There is no way back, and none from a
version before the first one here.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy
from sqlalchemy import Column
from sqlalchemy.schema import CreateColumn

from stoker.control.store.tables.jobs import jobs, webhooks
from stoker.control.store.tables.schema import SCHEMA_VERSION

ADDED: dict[int, tuple[Column[Any], ...]] = {
    8: (jobs.c.backoffs,),
    9: (jobs.c.api_key, webhooks.c.api_key, webhooks.c.endpoint),
    10: (jobs.c.traceparent,),
}
"""The columns that the tables of each version lack, compared with the next version."""


def upgrade(sql: sqlalchemy.Connection, found: int) -> bool:
    """Upgrades the tables in the caller's transaction. Returns False, and changes nothing, where no way leads
    from version `found`."""
    steps = range(found, SCHEMA_VERSION)
    if not steps or not all(version in ADDED for version in steps):
        return False
    for column in (column for version in steps for column in ADDED[version]):
        declared = CreateColumn(column).compile(dialect=sql.dialect)
        sql.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {declared}")
    return True
