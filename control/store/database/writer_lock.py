"""A standby's wait for the database of another control: for the lock that the writing connection holds.

The wait is shared: of several standbys none is in the way of another, and the one that opens the database
first has it. Nothing is taken from a control that counts its lead (`leadership`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import psycopg

from stoker.control.store.database import leadership
from stoker.control.store.database.opening import refusal
from stoker.control.store.database.postgres import PostgresDatabase
from stoker.control.store.database.postgres_failures import WRITER

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""The pause after which a server that is away is tried again."""

ROUND_S = 1
"""How long one statement waits for the lock; the count of the control's lead is looked at between two."""

_ROUND = f"SET lock_timeout = '{ROUND_S}s'; SET statement_timeout = '{2 * ROUND_S}s'"


async def wait_until_free(url: str) -> bool:
    """Waits until no control holds the database. Returns whether one did. A server that goes away meanwhile
    is waited for, too. Raises StoreAway where it does not answer at first, and StoreError where it refuses
    this control."""
    database = PostgresDatabase(url, alone=False)
    held = away = False
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(database.conninfo, autocommit=True) as raw:
                if away:
                    log.info("the database %s answers again; waiting on", database.name)
                    away = False
                if not held and await _is_free(raw):
                    return False
                if not held:
                    log.warning(
                        "another control works on the database %s; waiting for it to end", database.name
                    )
                    held = True
                await raw.execute(_ROUND)
                await _wait_or_take_over(raw, database.name)
                return True
        except psycopg.OperationalError as error:
            if not held:
                raise await refused(error, database) from None
            if not away:
                log.warning(
                    "the database %s went away: %s; waiting on", database.name, database.message(error)
                )
                away = True
        await asyncio.sleep(RETRY_S)


async def refused(error: psycopg.Error, database: PostgresDatabase) -> Exception:
    """Returns what is raised where a control cannot connect at first."""
    return await asyncio.to_thread(refusal, error, database) or error


async def _wait_or_take_over(raw: psycopg.AsyncConnection[Any], name: str) -> None:
    """Waits for the lock. Ends the sessions of a control that stands still."""
    watch, clock = leadership.Watch(), asyncio.get_running_loop().time
    while not await _was_freed(raw):
        if not await leadership.takes_writes(raw):
            continue  # it shows nothing that the control does not count
        lead = await leadership.look(raw)
        if watch.stands_still(lead, clock()) and await leadership.end_session(raw, lead):
            log.warning(
                "the control that works on the database %s has stood still for %.0f s; taking over",
                *(name, leadership.STILL_S),
            )


async def _is_free(raw: psycopg.AsyncConnection[Any]) -> bool:
    found = await (await raw.execute("SELECT pg_try_advisory_lock_shared(%s)", (WRITER,))).fetchone()
    return found is not None and bool(found[0])


async def _was_freed(raw: psycopg.AsyncConnection[Any]) -> bool:
    """Waits for a round. The lock that it gets ends with the connection."""
    try:
        await raw.execute("SELECT pg_advisory_lock_shared(%s)", (WRITER,))
    except psycopg.errors.LockNotAvailable:
        return False
    return True
