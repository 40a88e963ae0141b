"""Audit lines for changes that the command line makes in the store itself, without the management API.

As in that API, a line is begun before the change and completed after it, so there is no change without a
line. Instead of a key, the line names the user of the operating system who ran the command.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable
from typing import TypeVar

from stoker.control import store
from stoker.control.store import DEFAULT_ACCOUNT, Conn, Store
from stoker.control.store.database.commits import run_batch

T = TypeVar("T")

Line = tuple[str, str]
"""A method and a path, as in lines of the management API."""


def in_transaction(opened: Store, work: Callable[[Conn], T]) -> T:
    """Runs `work` in a transaction of its own."""
    ((value, error),) = run_batch(opened.writer, [work])
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]


def audited(opened: Store, line: Line, work: Callable[[Conn], T], *, status: int = 200) -> T:
    """Runs `work` with an audit line. `status` is that of success; an error is logged as 400 with its
    message."""
    who, now = local_user(), time.time()
    n = in_transaction(opened, lambda conn: store.begin_audit(conn, DEFAULT_ACCOUNT, who, now, *line))
    try:
        value = in_transaction(opened, work)
    except Exception as error:
        why = str(error)
        in_transaction(opened, lambda conn: store.end_audit(conn, n, 400, why))
        raise
    in_transaction(opened, lambda conn: store.end_audit(conn, n, status, ""))
    return value


def local_user() -> str:
    try:
        return f"local:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"local:{os.getuid()}"
