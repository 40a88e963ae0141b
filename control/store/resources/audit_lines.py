"""The audit log in the store: requests to the management API, the key of each, and its result.

A line is begun before a change is made and ended when it was answered, so a change without a line cannot be.
One that was never ended has no status: the process went away in between.
"""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update

from stoker.control.rules.types import AuditLine
from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.accounts import audit


def begin_audit(conn: Conn, account: str, key: str, at: float, method: str, path: str) -> int:
    """Begins a line, and returns its number."""
    row = {"account": account, "key": key, "at": at, "method": method, "path": path, "said": ""}
    return int(conn.execute(insert(audit).values(**row).returning(audit.c.n)).scalar_one())


def end_audit(conn: Conn, n: int, status: int, message: str) -> None:
    conn.execute(update(audit).where(audit.c.n == n).values(status=status, said=message))


def list_audit(
    conn: Conn, account: str, *, limit: int, before: int | None = None, since: float | None = None
) -> tuple[AuditLine, ...]:
    """Returns the lines, the newest first; `before` is the number of a line that is not wanted any more."""
    wanted = select(audit).where(audit.c.account == account).order_by(audit.c.n.desc()).limit(limit)
    if before is not None:
        wanted = wanted.where(audit.c.n < before)
    if since is not None:
        wanted = wanted.where(audit.c.at >= since)
    rows = conn.execute(wanted)
    return tuple(
        AuditLine(row.n, row.at, row.key, row.method, row.path, row.status, row.said) for row in rows
    )


def sweep_audit(conn: Conn, until: float, limit: int) -> int:
    """Deletes at most `limit` lines from before `until`, and returns how many it deleted."""
    old = select(audit.c.n).where(audit.c.at < until).limit(limit)
    return conn.execute(delete(audit).where(audit.c.n.in_(old))).rowcount
