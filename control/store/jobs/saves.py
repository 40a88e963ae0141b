"""Saves of jobs: stored with the chunks that they cover, given to the next attempt, dropped at the job's end.

    attempt 1: chunks 0 1 2, save upto 2  ── lost ──>  attempt 2 goes on: chunks 0 1 are kept, 2 is deleted

The chunks of attempts that go on from one another have the number of the first of these, `stream_attempt`, so
that a reader notices nothing. Chunks that no save covers yet are held back from readers (`held_from`): should
the attempt be lost, its successor may make other ones. A save is good for the program
(`control.store.jobs.programs`) and the kind of device that made it; for another one the job begins anew, and
its record says why. The content of the program, its files or its image, is compared by the agent, which
knows what its worker runs at that moment.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from msgspec import Struct

from stoker.control.rules.types import Slot
from stoker.control.store.database.opening import Conn
from stoker.control.store.database.statements import guard
from stoker.control.store.jobs.attempts import note_new_beginning
from stoker.control.store.jobs.orphan_objects import note_orphans, release
from stoker.control.store.jobs.programs import program
from stoker.control.store.jobs.reads import NO_REF, ref_columns, ref_of
from stoker.control.store.resources.endpoints import run_of
from stoker.wire.messages import Save, Saved

# ---- what made it -------------------------------------------------------------------------------

_GIVEN = """
SELECT w.endpoint, w.version, w.devices, n.devices FROM given_workers w JOIN nodes n ON n.id = w.node
WHERE w.worker = :worker AND w.node = :node
"""


class Maker(Struct, frozen=True):
    """A worker as the maker of a save. `shown`: its version and its devices, in words. `program`: the digest
    of what it runs, and of the kind of its devices; empty where the store knows of no such version."""

    shown: str = ""
    program: str = ""

    def stored(self, content: str) -> str:
        """Returns the maker of a save in one text. `content`: what the agent names its program by."""
        return f"{self.shown}\n{self.program}\n{content}"

    def goes_on(self, made_by: str) -> bool:
        """Returns whether this worker can go on from a save with the stored maker `made_by`. Saves of
        earlier releases have no program: they are good for the same version."""
        shown, made, _ = _parts(made_by)
        return self.shown == shown or self.program == made != ""


def _parts(made_by: str) -> tuple[str, str, str]:
    """Returns the words, the program and the content of a stored maker; "" for what an earlier release did
    not store."""
    shown, program, content, *_ = *made_by.split("\n"), "", ""
    return shown, program, content


def maker(conn: Conn, worker: str | None, node: str) -> Maker:
    """Returns the worker as the maker of a save."""
    row = conn.run(_GIVEN, {"worker": worker, "node": node}).fetchone()
    if row is None:
        return Maker()
    endpoint, version, uuids, known = row[0], row[1], json.loads(row[2]), json.loads(row[3])
    names = {device["uuid"]: device["name"] for device in known}
    devices = ", ".join(names.get(uuid, uuid) for uuid in uuids) or "no device"
    run = run_of(conn, endpoint, version)
    made = "" if run is None else f"{program(run, version)} on {devices}"
    return Maker(f"version {version} on {devices}", made)


# ---- stored -------------------------------------------------------------------------------------

_OPEN = f"""
SELECT j.seq, j.worker, COALESCE(j.stream_attempt, j.attempt),
       s.attempt, s.n, s.upto, s.sha256, s.ref_key, s.progressed
FROM jobs j LEFT JOIN saves s ON s.seq = j.seq
WHERE j.id = :job AND j.attempt = :attempt AND j.node = :node AND j.{guard("end")}
"""
_COVERS = "SELECT count(*) FROM chunks WHERE seq = :seq AND attempt = :stream AND n >= :before AND n < :upto"
_PUT = """
INSERT INTO saves (seq, attempt, n, upto, stream_attempt, made_by, progressed, sha256, state,
                   ref_key, ref_size, ref_sha256)
VALUES (:seq, :attempt, :n, :upto, :stream, :made_by, :progressed, :sha256, :state,
        :ref_key, :ref_size, :ref_sha256)
ON CONFLICT (seq) DO UPDATE SET attempt = excluded.attempt, n = excluded.n, upto = excluded.upto,
    stream_attempt = excluded.stream_attempt, made_by = excluded.made_by, progressed = excluded.progressed,
    sha256 = excluded.sha256, state = excluded.state, ref_key = excluded.ref_key,
    ref_size = excluded.ref_size, ref_sha256 = excluded.ref_sha256
"""
_COVERED = """
UPDATE jobs SET held_from = :upto, stream_attempt = :stream,
    given_before = CASE WHEN :progressed = attempt THEN attempt - refused ELSE given_before END
WHERE seq = :seq
"""


def put_save(conn: Conn, node: str, save: Save) -> bool:
    """Stores the save in place of the one before. Returns whether the attempt is open. A save that came
    before, or covers a chunk which was refused, changes nothing. Objects that no save names are noted for
    deletion."""
    row = conn.run(_OPEN, {"job": save.job, "attempt": save.attempt, "node": node}).fetchone()
    if row is None:
        _drop_object(conn, save)
        return False
    seq, worker, stream, *last, old_key, progressed = row
    attempt, n, upto, sha256 = last
    values = {"seq": seq, "attempt": save.attempt, "stream": stream, "upto": save.upto}
    known = attempt is not None and (attempt, n) >= (save.attempt, save.n)
    if known or not _covers(conn, values, upto or 0):
        _drop_object(conn, save)
        return True
    digest = hashlib.sha256(save.state).hexdigest() if save.ref is None else save.ref.sha256
    is_new = (upto, sha256) != (save.upto, digest)
    values |= {
        "progressed": save.attempt if is_new else progressed,
        "made_by": maker(conn, worker, node).stored(save.content),
    }
    where = NO_REF if save.ref is None else ref_columns(save.ref)
    conn.run(_PUT, {**values, "n": save.n, "sha256": digest, "state": save.state, **where})
    conn.run(_COVERED, values)
    note_orphans(conn, [] if old_key is None else [old_key])
    return True


def _covers(conn: Conn, values: dict[str, Any], before: int) -> bool:
    """Returns whether all chunks that the save covers are stored. `before`: as many as an earlier save
    covers."""
    more = values["upto"] - before
    row = conn.run(_COVERS, {**values, "before": before}).fetchone() if more else None
    return bool(more == (row[0] if row else 0))


def _drop_object(conn: Conn, save: Save) -> None:
    """Notes the object of a save that is not stored, unless this report came before, and it is."""
    if save.ref is not None:
        release(conn, save.job, [save.ref.key])


_PROGRESSED = """
SELECT 1 FROM jobs JOIN saves ON saves.seq = jobs.seq
WHERE jobs.id = :job AND saves.progressed = jobs.attempt
"""


def has_progressed(conn: Conn, job: str) -> bool:
    """Returns whether the job's current attempt has saved something new."""
    return conn.run(_PROGRESSED, {"job": job}).fetchone() is not None


_GIVEN_SAVE = """
UPDATE jobs SET attempt = 1, refused = 1 WHERE seq = :seq
"""


def give_save(conn: Conn, seq: int, saved: Saved) -> None:
    """Stores a save of another job for a new one, which goes on from it on any program and device: as if
    attempt 1 had been made elsewhere. The chunks that it covers stay with that job (`kept_chunks`)."""
    digest = hashlib.sha256(saved.state).hexdigest() if saved.ref is None else saved.ref.sha256
    where = NO_REF if saved.ref is None else ref_columns(saved.ref)
    values = {"seq": seq, "attempt": 1, "n": 0, "upto": saved.upto, "stream": 1, "progressed": 1}
    conn.run(_PUT, {**values, "made_by": _ANYWHERE, "sha256": digest, "state": saved.state, **where})
    conn.run(_GIVEN_SAVE, {"seq": seq})


# ---- given to the next attempt ------------------------------------------------------------------

_LAST = """
SELECT upto, stream_attempt, made_by, state, ref_key, ref_size, ref_sha256 FROM saves WHERE seq = :seq
"""
_GO_ON = "UPDATE jobs SET stream_attempt = :stream, held_from = :upto WHERE seq = :seq"
_VOID = "DELETE FROM chunks WHERE seq = :seq AND attempt = :stream AND n >= :upto RETURNING ref_key"
_BEGIN_ANEW = "UPDATE jobs SET reason = COALESCE(:why, reason), began_anew = 1 WHERE seq = :seq"


def saved_for(conn: Conn, seq: int, job: str, slot: Slot) -> Saved | None:
    """Returns the save that the attempt which was just claimed for this slot goes on from. None: it begins
    anew."""
    row = conn.run(_LAST, {"seq": seq}).fetchone()
    if row is None:
        return None
    upto, stream, made_by, state, *ref = row
    if made_by == _GONE:
        drop_save(conn, seq)
        conn.run(_BEGIN_ANEW, {"seq": seq, "why": None})
        return None
    here = maker(conn, slot.worker, slot.node)
    if not ((made_by == _ANYWHERE or here.goes_on(made_by)) and slot.saves):
        drop_save(conn, seq)
        was, *_ = _parts(made_by)
        why = f"the job begins anew: its save was made by {was}, and worker {slot.worker} is {here.shown}"
        if not slot.saves:
            why = f"the job begins anew: the agent of node {slot.node} is of an earlier version without saves"
        conn.run(_BEGIN_ANEW, {"seq": seq, "why": why})
        note_new_beginning(conn, seq, why)
        return None
    values = {"seq": seq, "stream": stream, "upto": upto}
    conn.run(_GO_ON, values)
    release(conn, job, [key for (key,) in conn.run(_VOID, values).fetchall()])
    return Saved(upto, state, ref_of(*ref), _parts(made_by)[2])


_ANYWHERE = "given"
"""Stands for the maker of a save that was given to a replay, on whatever that runs."""

_GONE = "gone"
"""Stands for the maker of a save that cannot be had any more: the reason of its job says why."""

_VOID_SAVE = "UPDATE saves SET made_by = :gone WHERE seq = :seq"


def void_save(conn: Conn, seq: int) -> bool:
    """Notes that nothing can go on from the job's save. Returns whether it has one."""
    return conn.run(_VOID_SAVE, {"seq": seq, "gone": _GONE}).rowcount > 0


_DROP = "DELETE FROM saves WHERE seq = :seq RETURNING ref_key"


def drop_save(conn: Conn, seq: int) -> None:
    """Deletes the job's save, if it has one; the object is noted for deletion."""
    row: Any = conn.run(_DROP, {"seq": seq}).fetchone()
    if row is not None and row[0] is not None:
        note_orphans(conn, [row[0]])
