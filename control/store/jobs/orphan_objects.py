"""Objects in the object store that no record names any more.

Each is noted in the transaction that gave it up, listed until it is deleted there, and then forgotten, so
that no crash loses it. A spilled payload may be named by several rows: by its job, by the job's case, and by
the webhooks that tell of its ends. The payload is noted once the last such row is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from stoker.control.rules.types import Changed
from stoker.control.store.database.opening import Conn
from stoker.wire.object_keys import attempt_prefix


def prefixes(endpoint: str, job: str, attempts: Iterable[int]) -> tuple[str, ...]:
    """Returns the prefixes below which these attempts may have uploaded something."""
    return tuple(attempt_prefix(endpoint, job, attempt) for attempt in attempts)


_NOTE = """
INSERT INTO leftovers (name, not_before) VALUES (:name, :not_before)
ON CONFLICT (name) DO UPDATE SET not_before = excluded.not_before
"""


def note_orphans(conn: Conn, names: Collection[str], not_before: float = 0.0) -> None:
    """Notes object keys, and prefixes that end in a slash, to be deleted from the object store.

    Who is about to put an object notes it for later and forgets it with the row that names it: no crash
    between the two leaves it behind.
    """
    if names:
        conn.run_many(_NOTE, [{"name": name, "not_before": not_before} for name in names])


def noted(conn: Conn, changed: tuple[Changed, ...]) -> tuple[Changed, ...]:
    """Notes what the attempts that do not count have left, in the transaction that gave them up."""
    note_orphans(conn, [prefix for change in changed for prefix in change.losers])
    return changed


_NAMED = """
SELECT input_key, output_key FROM webhooks WHERE job = :job
UNION ALL
SELECT inputs.ref_key, results.ref_key FROM jobs
LEFT JOIN inputs ON inputs.seq = jobs.seq LEFT JOIN results ON results.seq = jobs.seq WHERE jobs.id = :job
UNION ALL
SELECT chunks.ref_key, NULL FROM jobs JOIN chunks ON chunks.seq = jobs.seq
WHERE jobs.id = :job AND chunks.ref_key IS NOT NULL
UNION ALL
SELECT saves.ref_key, NULL FROM jobs JOIN saves ON saves.seq = jobs.seq
WHERE jobs.id = :job AND saves.ref_key IS NOT NULL
UNION ALL
SELECT cases.ref_key, NULL FROM jobs JOIN cases ON cases.seq = jobs.seq
WHERE jobs.id = :job AND cases.ref_key IS NOT NULL
"""


def release(conn: Conn, job: str, keys: Iterable[str | None]) -> None:
    """Notes those of the job's spilled payloads that no row names; to be called when rows were deleted."""
    released = {key for key in keys if key is not None}
    if released:
        named = {key for row in conn.run(_NAMED, {"job": job}) for key in row}
        note_orphans(conn, sorted(released - named))


_READ_ON = """
SELECT ref_key FROM chunks WHERE seq = :seq AND attempt = :stream AND ref_key IS NOT NULL
"""


def without_read(conn: Conn, seq: int, stream: int, found: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the prefixes below which there is no chunk of the job's stream, which is read on. `stream`: the
    attempt that its chunks are stored with."""
    named = [key for (key,) in conn.run(_READ_ON, {"seq": seq, "stream": stream}).fetchall()]
    return tuple(prefix for prefix in found if not any(key.startswith(prefix) for key in named))


_DELIVERED = "SELECT 1 FROM artifacts WHERE job = :job LIMIT 1"


def has_delivered(conn: Conn, job: str) -> bool:
    """Returns whether files of the job have URLs that are good for their seven days."""
    return conn.run(_DELIVERED, {"job": job}).fetchone() is not None


def due_orphans(conn: Conn, now: float, limit: int) -> tuple[str, ...]:
    due = "SELECT name FROM leftovers WHERE not_before <= :now LIMIT :limit"
    found = conn.run(due, {"now": now, "limit": limit})
    return tuple(name for (name,) in found)


def forget_orphans(conn: Conn, names: Collection[str]) -> None:
    """Forgets objects that were deleted from the object store."""
    conn.run_many("DELETE FROM leftovers WHERE name = :name", [{"name": name} for name in names])
