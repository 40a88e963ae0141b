"""Chunks that a save covers, as the store gives them back to the attempt that goes on from it.

Only the node that holds the attempt gets them. A page is chosen by its chunks' sizes before their values are
read, so that no more is read than a message takes.
"""

from __future__ import annotations

from stoker.control.rules.nodes.kept_pages import PAGE_CHUNKS, KeptChunk, page, refusal
from stoker.control.store.database.opening import Conn
from stoker.control.store.jobs.reads import ref_of
from stoker.wire.messages import KeptAsk, KeptPage

_HOLDS = """
SELECT s.seq, s.stream_attempt, s.upto FROM jobs j JOIN saves s ON s.seq = j.seq
WHERE j.id = :job AND j.attempt = :attempt AND j.node = :node
"""
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
    seq, stream, upto = row or (None, None, None)
    if why := refusal(ask, upto):
        return KeptPage(ask.number, why)
    values = {"seq": seq, "stream": stream, "first": ask.first, "upto": ask.upto}
    sizes = conn.run(_SIZES, {**values, "most": PAGE_CHUNKS}).fetchall()
    count = page(ask.first, [KeptChunk(n, size, bool(is_object)) for n, size, is_object in sizes])
    if not count:
        return KeptPage(ask.number, f"chunk {ask.first} of job {ask.job} is not stored any more")
    rows = conn.run(_VALUES, {**values, "upto": ask.first + count}).fetchall()
    if (ref := ref_of(*rows[0][1:])) is not None:
        return KeptPage(ask.number, ref=ref)
    return KeptPage(ask.number, values=tuple(bytes(value) for value, *_ in rows))


_KEPT = """
SELECT 1 FROM jobs j JOIN saves s ON s.seq = j.seq
JOIN chunks c ON c.seq = s.seq AND c.attempt = s.stream_attempt AND c.n < s.upto
WHERE j.id = :job AND c.ref_key = :key
"""


def is_kept(conn: Conn, job: str, key: str) -> bool:
    """Returns whether the object is a chunk that the job's save covers."""
    return conn.run(_KEPT, {"job": job, "key": key}).fetchone() is not None
