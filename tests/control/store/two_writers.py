"""Two transactions on one PostgreSQL database: the second runs between two statements of the first."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from stoker.control import store
from stoker.control.store import Conn
from stoker.control.store.database.commits import run_batch

PATIENCE_S = 60.0
_BLOCKED = "SELECT cardinality(pg_blocking_pids(%s)) > 0"


@dataclass(frozen=True, slots=True)
class Ends:
    """What the two returned, or the errors that they raised."""

    first: Any
    second: Any


class TwoWriters:
    """The second and third connection to a bench's database. The server finds a deadlock at once."""

    def __init__(self, bench: Any, url: str) -> None:
        self._first: Conn = bench.store.writer
        self._other = store.open_store(url, secrets=bench.store.secrets, alone=False)
        self._watching = psycopg.connect(url, autocommit=True)
        for conn in (self._first, self._other.writer):
            conn.raw.execute("SET deadlock_timeout = '10ms'")

    def close(self) -> None:
        self._watching.close()
        self._other.close()

    def interleaved(
        self, after: int, first: Callable[[Conn], Any], second: Callable[[Conn], Any]
    ) -> tuple[Ends, bool]:
        """Runs `first` up to its statement number `after`, then `second` until it has ended or waits for
        `first`, then both to their ends. Returns how they ended, and whether `first` has so many
        statements."""
        stopped, go_on = threading.Event(), threading.Event()
        ends: dict[str, Any] = {}
        count = itertools.count(1)

        def stop() -> None:
            if next(count) == after:
                stopped.set()
                assert go_on.wait(PATIENCE_S)

        def run(name: str, conn: Conn, fn: Callable[[Conn], Any]) -> None:
            ((value, error),) = run_batch(conn, [fn])
            ends[name] = value if error is None else error

        def run_first() -> None:
            with _stopping(self._first, stop):
                run("first", self._first, first)
            ends["reached"] = stopped.is_set()
            stopped.set()

        one = threading.Thread(target=run_first)
        two = threading.Thread(target=run, args=("second", self._other.writer, second))
        one.start()
        assert stopped.wait(PATIENCE_S)
        two.start()
        while two.is_alive() and not self._waits():
            pass
        go_on.set()
        for thread in (one, two):
            thread.join(PATIENCE_S)
        return Ends(ends["first"], ends["second"]), ends["reached"]

    def _waits(self) -> bool:
        pid = self._other.writer.raw.info.backend_pid
        row = self._watching.execute(_BLOCKED, (pid,)).fetchone()
        return row is not None and bool(row[0])


class _stopping:
    """Calls `stop` after each statement of the connection during the block."""

    def __init__(self, conn: Any, stop: Callable[[], None]) -> None:
        self._conn, self._stop = conn, stop

    def __enter__(self) -> None:
        for name in ("run", "execute"):
            setattr(self._conn, name, self._stopping(getattr(self._conn, name)))

    def __exit__(self, *_: object) -> None:
        for name in ("run", "execute"):
            delattr(self._conn, name)

    def _stopping(self, does: Callable[..., Any]) -> Callable[..., Any]:
        def statement(*values: Any) -> Any:
            result = does(*values)
            self._stop()
            return result

        return statement
