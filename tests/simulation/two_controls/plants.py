"""Bugs of the lead to plant: each takes away a fence between a control and the one that replaced it."""

from __future__ import annotations

import asyncio
from typing import Any

from stoker.control.store.database.postgres import PostgresDatabase
from tests.simulation.plants import PLANTS, Patch, planted


@planted
def a_session_that_is_opened_again_has_no_lock(patch: Patch) -> None:
    """So a control that was replaced claims and stores, with what it remembers."""
    locked = PostgresDatabase._lock

    def lock(self: PostgresDatabase, raw: Any) -> None:
        if self._term is None:
            locked(self, raw)

    patch(PostgresDatabase, "_lock", lock)


@planted
def a_session_that_is_opened_again_is_of_any_term(patch: Patch) -> None:
    """A restart of the database frees the lock for the control that was replaced."""
    locked = PostgresDatabase._lock

    def lock(self: PostgresDatabase, raw: Any) -> None:
        term, self._term = self._term, None
        try:
            locked(self, raw)
        finally:
            self._term = term

    patch(PostgresDatabase, "_lock", lock)


@planted
def a_leader_does_not_look_for_another_term(patch: Patch) -> None:
    """A control that was replaced goes on, and stores nothing."""

    async def keep_lead(_: PostgresDatabase) -> None:
        await asyncio.get_running_loop().create_future()

    patch(PostgresDatabase, "keep_lead", keep_lead)


OF_TWO_CONTROLS = [name for name, bug in PLANTS.items() if bug.__module__ == __name__]
