"""Chunks that a save covers, as the store gives them back to the attempt that goes on from it.

Only the node that holds the attempt gets them. A page is chosen by its chunks' sizes before their values are
read, so that no more is read than a message takes.

    replay            3 4     its own, since it saved
    its job     0 1 2 3 4     those before: they are not copied, and go with that job's record or its retry
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from stoker.control.rules.nodes.kept_pages import PAGE_CHUNKS, KeptChunk, page, refusal
from stoker.control.store.database.opening import Conn
from stoker.control.store.jobs.reads import ref_of
from stoker.wire.messages import KeptAsk, KeptPage

_SAVED = """
SELECT e.asked, s.seq, s.stream_attempt, s.upto FROM jobs j JOIN saves s ON s.seq = j.seq
JOIN endpoints e ON e.id = j.endpoint WHERE j.id = :job
"""
_HOLDS = f"{_SAVED} AND j.attempt = :attempt AND j.node = :node"
_ENDPOINT = "SELECT e.asked, j.seq FROM jobs j JOIN endpoints e ON e.id = j.endpoint WHERE j.id = :job"
_SIZES = """
SELECT n, length(value), ref_key IS NOT NULL FROM chunks
WHERE seq = :seq AND attempt = :stream AND n >= :first AND n < :upto ORDER BY n LIMIT :most
"""
_VALUES = """
SELECT value, ref_key, ref_size, ref_sha256 FROM chunks
WHERE seq = :seq AND attempt = :stream AND n >= :first AND n < :upto ORDER BY n
"""


def kept_page(conn: Conn, node: str, ask: KeptAsk) -> KeptPage:
    """Returns the page that begins with the first chunk asked for, or why there is none."""
    row = conn.run(_HOLDS, {"job": ask.job, "attempt": ask.attempt, "node": node}).fetchone()
    if why := refusal(ask, None if row is None else row[3]):
        return KeptPage(ask.number, why)
    upto = ask.upto
    for stream in _streams(conn, *row[:3]):
        values = {**stream, "first": ask.first, "upto": upto}
        sizes = conn.run(_SIZES, {**values, "most": PAGE_CHUNKS}).fetchall()
        if count := page(ask.first, [KeptChunk(n, size, bool(is_object)) for n, size, is_object in sizes]):
            rows = conn.run(_VALUES, {**values, "upto": ask.first + count}).fetchall()
            if (ref := ref_of(*rows[0][1:])) is not None:
                return KeptPage(ask.number, ref=ref)
            return KeptPage(ask.number, values=tuple(bytes(value) for value, *_ in rows))
        upto = sizes[0][0] if sizes else upto
    return KeptPage(ask.number, f"chunk {ask.first} of job {ask.job} is not stored any more")


def _streams(conn: Conn, asked: str, seq: int, attempt: int) -> Iterator[dict[str, int]]:
    """Returns the streams that have the chunks of a job's save: its own, and where the job is a replay, that
    of the job that it replays, and so on. A chunk counts in the first that has it."""
    yield {"seq": seq, "stream": attempt}
    while (replay := json.loads(asked).get("replay")) is not None:
        row = conn.run(_ENDPOINT, {"job": replay["job"]}).fetchone()
        if row is None or not replay.get("stream"):
            return
        asked, seq = row
        yield {"seq": seq, "stream": replay["stream"]}


_KEPT = "SELECT 1 FROM chunks WHERE seq = :seq AND attempt = :stream AND n < :upto AND ref_key = :key"


def is_kept(conn: Conn, job: str, key: str) -> bool:
    """Returns whether the object is a chunk that the job's save covers."""
    row = conn.run(_SAVED, {"job": job}).fetchone()
    if row is None:
        return False
    *last, upto = row
    more = {"upto": upto, "key": key}
    return any(conn.run(_KEPT, {**stream, **more}).fetchone() for stream in _streams(conn, *last))
