"""The meaning of a driver's error: whether the store is down for a while, full, or worth another try.

Whatever is none of these is a mistake, ours or a caller's, and stays the error that it is.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import sqlalchemy.exc

from stoker.control.store.database import postgres_failures
from stoker.control.store.database import sqlite as store_sqlite
from stoker.control.store.database.postgres_failures import is_of_driver

if TYPE_CHECKING:
    import psycopg


def driver_error(error: BaseException) -> sqlite3.Error | psycopg.Error | None:
    """Returns the driver's own error, if there is one in `error`."""
    cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
    return cause if isinstance(cause, sqlite3.Error) or is_of_driver(cause) else None


def unavailable(error: BaseException) -> str | None:
    """Returns why the store could not do what was asked; None where it could and would not."""
    match driver_error(error):
        case sqlite3.Error() as found:
            code = store_sqlite.code(found)
            return None if code is None else store_sqlite.UNAVAILABLE.get(code)
        case found if is_of_driver(found):
            return postgres_failures.why(found)
        case _:
            return str(error) if isinstance(error, postgres_failures.DatabaseInUse) else None


def is_full(error: BaseException) -> bool:
    """Returns whether the disk is full. One big payload may not fit where small ones do."""
    match driver_error(error):
        case sqlite3.Error() as found:
            return store_sqlite.code(found) == sqlite3.SQLITE_FULL
        case found if is_of_driver(found):
            return found.sqlstate == "53100"
        case _:
            return False


def is_clash(error: BaseException) -> bool:
    """Returns whether another transaction was in the way: the same transaction may well succeed when it is
    tried again."""
    found = driver_error(error)
    return is_of_driver(found) and found.sqlstate in postgres_failures.AGAIN
