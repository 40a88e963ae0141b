"""The outbox's file: replaced as a whole, durable when `save` returns, and a torn one is noticed.

Layout: a magic line, the payload's sha256, then the payload: one JSON line for each report, payloads in
base64. Written to a second file, fsynced, renamed over the old one, and the folder fsynced: after a crash at
any point the file is the old one or the new one. Should the disk have torn it all the same, the checksum
tells, and it loads as nothing: control requeues what the agent no longer holds.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from stoker.agent.errors import OutboxUnusable
from stoker.wire.messages import Artifact, Chunk, Outcome, Ref, Refused, ReportBody, Save, Span, Usage

log = logging.getLogger(__name__)

_MAGIC = b"stoker-outbox-1\n"
_DIGEST = 32


class OutboxFile:
    """The real OutboxDisk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count(1)
        self._writing = threading.Lock()
        self._written = 0

    def save(self, data: bytes) -> None:
        self._write(next(self._numbers), data)

    def save_soon(self, data: Callable[[], bytes], done: Callable[[Exception | None], None]) -> None:
        """Saves in a thread that ends with the process, which the thread does not hold up."""
        number, loop = next(self._numbers), asyncio.get_running_loop()

        def work() -> None:
            error: Exception | None = None
            try:
                self._write(number, data())
            except Exception as failed:
                error = failed
            with suppress(RuntimeError):  # the loop is closed: nothing waits for it
                loop.call_soon_threadsafe(done, error)

        try:
            threading.Thread(target=work, name="outbox", daemon=True).start()
        except RuntimeError as none_left:  # of threads, on this host; the next save may find one
            loop.call_soon(done, none_left)

    def _write(self, number: int, data: bytes) -> None:
        """Writes the data, unless a later save is there already."""
        with self._writing:
            if number > self._written:
                self._replace(data)
                self._written = number

    def _replace(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new_file = self._path.with_name(self._path.name + ".new")
        fd = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, _MAGIC + hashlib.sha256(data).digest() + data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(new_file, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def load(self) -> bytes | None:
        """Raises OutboxUnusable: what an earlier agent could not deliver may be there."""
        try:
            whole = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OutboxUnusable(
                f"the outbox {self._path} cannot be read: {error.strerror}; it must be a file of this user:"
                " mend it or move it away, and start the agent again"
            ) from None
        start = len(_MAGIC) + _DIGEST
        digest, data = whole[len(_MAGIC) : start], whole[start:]
        if not whole.startswith(_MAGIC) or hashlib.sha256(data).digest() != digest:
            log.error("the outbox file %s is damaged; the reports in it are lost", self._path)
            return None
        return data


def encode(bodies: Sequence[ReportBody]) -> bytes:
    """Returns the payload for these reports; only those that `outbox.durable` names have a form on disk."""
    return b"".join(json.dumps(_packed(body)).encode() + b"\n" for body in bodies)


def decode(data: bytes) -> list[ReportBody]:
    return [_unpacked(json.loads(line)) for line in data.splitlines()]


def _packed(body: ReportBody) -> dict[str, Any]:
    fields: dict[str, Any] = to_builtins(body)  # bytes become Base64
    if isinstance(body, Outcome) and not body.case:
        del fields["case"]  # an agent from before there were cases reads the others
    if isinstance(body, Usage):
        return {"kind": "usage", "span": fields}  # apart: it has a kind of its own
    kinds: dict[type[Any], str] = {Chunk: "chunk", Save: "save", Refused: "refused"}
    return {"kind": kinds.get(type(body), "outcome"), **fields}


def _unpacked(fields: dict[str, Any]) -> ReportBody:
    """Returns the report with these fields; an agent from before a field existed left the field out."""
    kind = fields.pop("kind")
    if kind == "usage":
        return Usage(**{**fields["span"], "devices": tuple(fields["span"]["devices"])})
    if kind == "chunk":
        ref = _ref(fields.get("ref"))
        return Chunk(**{**fields, "value": base64.b64decode(fields["value"]), "ref": ref})
    if kind == "save":
        ref = _ref(fields["ref"])
        return Save(**{**fields, "state": base64.b64decode(fields["state"]), "ref": ref})
    if kind == "refused":
        return Refused(**fields)
    output = fields["output"]
    fields["output"] = None if output is None else base64.b64decode(output)
    fields["output_ref"] = _ref(fields["output_ref"])
    fields["case"] = base64.b64decode(fields.get("case", ""))
    fields["log"] = tuple(fields.get("log", ()))
    fields["log_at_ms"] = tuple(fields.get("log_at_ms", ()))
    fields["spans"] = tuple(Span(**span) for span in fields["spans"])
    fields["artifacts"] = tuple(Artifact(**artifact) for artifact in fields["artifacts"])
    return Outcome(**fields)


def _ref(fields: dict[str, Any] | None) -> Ref | None:
    return None if fields is None else Ref(**fields)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
