"""The lead of a PostgreSQL database: which control has it, that this control is alive, and its end.

    opens the store ──> term + 1, holds the term's lock ──> counts every 2 s ──> finds another term: ends
    a standby sees the same count for 10 s, and that lock held ──> ends the holder's session, opens the store

All writes of a control go through one session. Since this was connected, it holds the writer's lock, and the
term was the control's own. So a control that stood still and was replaced can write nothing: its session was
ended, and the next one finds another term. One that stood still and was not replaced goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import psycopg
from msgspec import Struct

from stoker.control.store.database.postgres_failures import WRITER

log = logging.getLogger(__name__)

BEAT_S = 2.0
STILL_S = 10.0
"""How long the count of a control stands still before a standby takes its lead."""
GAP_S = 5.0
"""Looks that are further apart say nothing: the server, or this process, stood still as well."""
RETRY_S = 1.0

_TERMS = WRITER >> 16  # the locks of terms: two numbers, as PostgreSQL keeps them apart from those of one
_FIND = "SELECT value FROM meta WHERE name = 'lead'"
_RAISE = """
INSERT INTO meta (name, value) VALUES ('lead', %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_COUNT = "UPDATE meta SET value = %s WHERE name = 'lead' AND value = %s"
_READ_ONLY = "SHOW transaction_read_only"
_END = """
SELECT pg_terminate_backend(writer.pid) FROM pg_locks AS writer JOIN pg_locks AS term USING (pid, database)
WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND writer.locktype = 'advisory' AND writer.granted AND writer.mode = 'ExclusiveLock' AND writer.objsubid = 1
AND writer.classid = %s::bigint::oid AND writer.objid = %s::bigint::oid
AND term.locktype = 'advisory' AND term.granted AND term.objsubid = 2
AND term.classid = %s::bigint::oid AND term.objid = %s::bigint::oid
"""


class Lead(Struct, frozen=True):
    """The term of a control, and how often it has counted since."""

    term: int = 0
    count: int = 0

    def text(self) -> bytes:
        return json.dumps({"term": self.term, "count": self.count}).encode()


def read(value: Any) -> Lead:
    """Returns the lead that `meta` names; term 0 where no control has raised one."""
    return Lead(**json.loads(bytes(value))) if value else Lead()


class Watch:
    """Looks at the lead of another control. Times are of one clock of this process, in seconds."""

    def __init__(self) -> None:
        self._seen = Lead()
        self._since = self._looked = float("-inf")

    def stands_still(self, lead: Lead, now: float) -> bool:
        """Returns whether the count has stood still for `STILL_S`, as looks at most `GAP_S` apart saw it."""
        if lead != self._seen or now - self._looked > GAP_S:
            self._seen, self._since = lead, now
        self._looked = now
        return lead.term > 0 and now - self._since >= STILL_S


def take(raw: psycopg.Connection[Any]) -> int:
    """Raises the term in the session that holds the writer's lock. Returns the term."""
    term = found_term(raw) + 1
    hold(raw, term)
    raw.execute(_RAISE, (Lead(term).text(),))
    return term


def hold(raw: psycopg.Connection[Any], term: int) -> None:
    """Holds the term's lock while the session lives."""
    raw.execute("SELECT pg_advisory_lock(%s::int4, %s::int4)", (_TERMS, term))


def found_term(raw: psycopg.Connection[Any]) -> int:
    return read((raw.execute(_FIND).fetchone() or (None,))[0]).term


async def look(raw: psycopg.AsyncConnection[Any]) -> Lead:
    """Returns the lead; term 0 where there are no tables yet."""
    try:
        row = await (await raw.execute(_FIND)).fetchone()
    except psycopg.errors.UndefinedTable:
        return Lead()
    return read(row[0] if row else None)


async def takes_writes(raw: psycopg.AsyncConnection[Any]) -> bool:
    """Returns whether a control could count there: not where the server may only be read."""
    row = await (await raw.execute(_READ_ONLY)).fetchone()
    return row == ("off",)


async def end_session(raw: psycopg.AsyncConnection[Any], lead: Lead) -> bool:
    """Ends the writing session of the control that has this term. Returns whether there was one: a control of
    an earlier version does not count, holds no term, and is left alone."""
    ended = await raw.execute(_END, (WRITER >> 32, WRITER & 0xFFFFFFFF, _TERMS, lead.term))
    return bool(ended.rowcount)


async def count(conninfo: str, term: int, lose: Callable[[], None]) -> None:
    """Counts until cancelled, or until another control has the lead: calls `lose` then. A server that is away
    is waited for."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as raw:
                lead = await look(raw)
                while lead.term == term:
                    following = Lead(term, lead.count + 1)
                    done = await raw.execute(_COUNT, (following.text(), lead.text()))
                    lead = following if done.rowcount else await look(raw)
                    await asyncio.sleep(BEAT_S)
                lose()
                return
        except psycopg.Error as error:
            log.debug("the lead is not counted: %s", error)  # the store itself says that the server is away
        await asyncio.sleep(RETRY_S)
