"""URLs of PostgreSQL databases, and the meaning of their failures. Without the driver, which takes 0.1 s and
9 MB, and which a store in a file never needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    import psycopg

WRITER = 0x53746F6B6572  # "Stoker" in ASCII
"""The number of the lock that the connection which writes holds."""

SCHEMES = ("postgresql://", "postgres://")

AGAIN = frozenset({"40001", "40P01"})
"""Serialization failure and deadlock: the same transaction may well succeed when it is tried again."""

_GONE = "the database went away"
UNAVAILABLE = {
    "08": _GONE,
    "25006": "the database may not be written",
    "25P03": "the database ended a transaction that stood still",
    "28": "the database refuses this user or its password",
    "3D000": "there is no such database any more",
    "40": "other transactions were in the way",
    "53100": "the disk of the database is full",
    "53200": "the database has no memory left",
    "53300": "the database has too many connections",
    "53": "the database is short of a resource",
    "55P03": "the database is locked by another process",
    "57014": "the database took too long",
    "57P01": "the database is shutting down",
    "57P02": "the database crashed",
    "57P03": "the database is not ready for connections",
    "57P04": "the database was dropped",
    "57P05": "the database ended an idle connection",
    "58": "the disk of the database does not answer as it should",
}
"""By SQLSTATE, or by its class: the first two characters."""


class DatabaseInUse(Exception):
    """Another control holds the database."""


def is_url(where: str) -> bool:
    return where.startswith(SCHEMES)


def is_of_driver(error: BaseException | None) -> TypeGuard[psycopg.Error]:
    """Returns whether psycopg raised this. A driver that was not imported raised nothing."""
    driver = sys.modules.get("psycopg")
    return driver is not None and isinstance(error, driver.Error)


def why(error: psycopg.Error) -> str | None:
    """Returns the reason, if the server failed and not the statement."""
    if error.sqlstate is not None:
        return UNAVAILABLE.get(error.sqlstate) or UNAVAILABLE.get(error.sqlstate[:2])
    return _GONE if isinstance(error, sys.modules["psycopg"].OperationalError) else None
