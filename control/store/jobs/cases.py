"""Cases of failed jobs: what ran them and where, kept with the job's record for its endpoint's `keepCases`.

The input and the error stay where they are. The job's last save, which is dropped at any other end, becomes
the case's own. A case ends with its job's record, and with a retry of the job.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from stoker.control.rules.types import EndpointVersion
from stoker.control.store.database.opening import Conn
from stoker.control.store.jobs.orphan_objects import note_orphans
from stoker.control.store.jobs.reads import ref_of
from stoker.control.store.resources.endpoints import read_version
from stoker.wire.messages import Outcome, Ref

# ---- kept ---------------------------------------------------------------------------------------

_KEEPS = "SELECT keep_cases FROM endpoints WHERE id = :endpoint"
_GIVEN = """
SELECT w.version, w.devices, n.devices, n.facts, n.name FROM given_workers w JOIN nodes n ON n.id = w.node
WHERE w.worker = :worker AND w.node = :node
"""
_TAKE_SAVE = """
DELETE FROM saves WHERE seq = :seq RETURNING upto, state, ref_key, ref_size, ref_sha256
"""
_PUT = """
INSERT INTO cases (seq, attempt, version, node, worker, facts, noted,
                   saved_upto, saved, ref_key, ref_size, ref_sha256)
VALUES (:seq, :attempt, :version, :node, :worker, :facts, :noted,
        :upto, :saved, :ref_key, :ref_size, :ref_sha256)
"""
_FACTS = ("agent_version", "cuda", "isolation", "vcpus", "memory_bytes")
"""Of the node's facts, those that say what the job ran on."""


def keep_case(conn: Conn, node: str, seq: int, endpoint: str, outcome: Outcome) -> str | None:
    """Stores the case of a job that has just failed, if its endpoint keeps cases. Returns the key of the
    object that the case has from the job's last save, None where there is none."""
    row = conn.run(_KEEPS, {"endpoint": endpoint}).fetchone()
    if row is None or not row[0]:
        return None
    version, name, facts = _ran_on(conn, node, outcome.worker)
    saved = conn.run(_TAKE_SAVE, {"seq": seq}).fetchone() or (None,) * 5
    values: dict[str, Any] = {"seq": seq, "attempt": outcome.attempt, "version": version, "node": name}
    values |= {"worker": outcome.worker, "facts": json.dumps(facts), "noted": outcome.case}
    names = ("upto", "saved", "ref_key", "ref_size", "ref_sha256")
    conn.run(_PUT, values | dict(zip(names, saved, strict=True)))
    key: str | None = saved[2]
    return key


def _ran_on(conn: Conn, node: str, worker: str) -> tuple[int | None, str, dict[str, Any]]:
    """Returns the version of the endpoint that the worker ran, the node's name, and its devices and facts."""
    row = conn.run(_GIVEN, {"worker": worker, "node": node}).fetchone()
    if row is None:
        return None, node, {}
    uuids, devices, facts = (json.loads(text) for text in row[1:4])
    used = [_device(one) for one in devices if one["uuid"] in uuids]
    told = {name: facts[name] for name in _FACTS if name in facts}
    return row[0], row[4] or node, {"devices": used, "node": told}


def _device(known: dict[str, Any]) -> dict[str, Any]:
    fields = {name: known.get(name) for name in ("kind", "name", "driver", "memory_total")}
    return {name: value for name, value in fields.items() if value not in (None, "")}


# ---- read ---------------------------------------------------------------------------------------


class StoredCase(Struct, frozen=True):
    """A case as it is stored. `run`: what the worker ran; None where that version is not known. `noted`: JSON
    of the worker, empty where it noted nothing. `progress`: JSON, what the job reported last. `saved`: the
    last save, inline, or the object `saved_ref`. `stream`: the attempt that the job's chunks are stored
    with."""

    attempt: int
    worker: str
    node: str
    version: int | None
    run: EndpointVersion | None
    facts: dict[str, Any]
    noted: bytes
    input: bytes | None
    input_ref: Ref | None
    timeout_ms: int
    progress: bytes | None
    saved_upto: int | None
    saved: bytes | None
    saved_ref: Ref | None
    stream: int


_READ = """
SELECT c.attempt, c.worker, c.node, c.version, c.facts, c.noted, i.body, i.ref_key, i.ref_size, i.ref_sha256,
       c.saved_upto, c.saved, c.ref_key, c.ref_size, c.ref_sha256, j.execution_timeout_ms, p.value,
       COALESCE(j.stream_attempt, j.attempt)
FROM jobs j JOIN cases c ON c.seq = j.seq LEFT JOIN inputs i ON i.seq = j.seq
LEFT JOIN progress p ON p.seq = j.seq
WHERE j.id = :job AND j.endpoint = :endpoint
"""


def case_of(conn: Conn, endpoint: str, job: str) -> StoredCase | None:
    """Returns the job's case, None where there is none."""
    row = conn.run(_READ, {"job": job, "endpoint": endpoint}).fetchone()
    if row is None:
        return None
    attempt, worker, node, version, facts, noted, body, *rest = row
    return StoredCase(
        attempt=attempt,
        worker=worker,
        node=node,
        version=version,
        run=None if version is None else read_version(conn, endpoint, version),
        facts=json.loads(facts),
        noted=bytes(noted),
        input=body,
        input_ref=ref_of(*rest[:3]),
        timeout_ms=rest[8],
        progress=rest[9],
        saved_upto=rest[3],
        saved=rest[4],
        saved_ref=ref_of(*rest[5:8]),
        stream=rest[10],
    )


_COMPLETED = """
SELECT j.attempt, j.worker, w.node, w.version, i.body, i.ref_key, i.ref_size, i.ref_sha256,
       j.execution_timeout_ms, p.value
FROM jobs j LEFT JOIN inputs i ON i.seq = j.seq LEFT JOIN progress p ON p.seq = j.seq
LEFT JOIN given_workers w ON w.worker = j.worker
WHERE j.id = :job AND j.endpoint = :endpoint AND j.state = 'COMPLETED'
"""


def case_of_completed(conn: Conn, endpoint: str, job: str) -> StoredCase | None:
    """Returns what is known of a completed job as a case, for which nothing is kept: what ran it, where, and
    its input. None where it has not completed."""
    row = conn.run(_COMPLETED, {"job": job, "endpoint": endpoint}).fetchone()
    if row is None:
        return None
    attempt, worker, node, version, body, *rest = row
    _, name, facts = (None, "", dict[str, Any]()) if node is None else _ran_on(conn, node, worker)
    return StoredCase(
        attempt=attempt,
        worker=worker or "",
        node=name,
        version=version,
        run=None if version is None else read_version(conn, endpoint, version),
        facts=facts,
        noted=b"",
        input=body,
        input_ref=ref_of(*rest[:3]),
        timeout_ms=rest[3],
        progress=rest[4],
        saved_upto=None,
        saved=None,
        saved_ref=None,
        stream=attempt,
    )


# ---- dropped ------------------------------------------------------------------------------------

_DROP = "DELETE FROM cases WHERE seq = :seq RETURNING ref_key"


def drop_case(conn: Conn, seq: int) -> None:
    """Deletes the job's case, if it has one; the object of its save is noted for deletion."""
    row = conn.run(_DROP, {"seq": seq}).fetchone()
    if row is not None and row[0] is not None:
        note_orphans(conn, [row[0]])
