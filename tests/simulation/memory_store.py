"""Stores in memory for tests that open hundreds: the tables are made once, each statement compiled once."""

from __future__ import annotations

from functools import cache

from stoker.control.store import Store, open_store


@cache
def _model() -> Store:
    return open_store(":memory:")


def memory_store() -> Store:
    """As `open_store(":memory:")` makes it: nobody else sees what is in it."""
    model = _model()
    made = Store(model.database, model.secrets)
    model.writer.raw.backup(made.writer.raw)
    return made
