"""The shell of `agent.jobs.attempts.chunks`: holds the chunks and saves that wait, uploads large ones.

Made for an attempt at its first large chunk or save; until then they are reported as they come. A save has a
place among the chunks, so that it is reported after those that it covers. What happens to an upload goes to
the attempt's machine as events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from stoker.agent.alarm import Alarm
from stoker.agent.interfaces import Objects
from stoker.agent.jobs.attempts import chunks
from stoker.agent.jobs.attempts import events as ev
from stoker.agent.jobs.uploads.payloads import HandedFile
from stoker.outbound.errors import OutboundError
from stoker.wire.messages import AttemptKey, Chunk, Grant, Ref, Save
from stoker.wire.object_keys import chunk_key, save_key

log = logging.getLogger(__name__)


class Piece(Struct, frozen=True):
    """A chunk, or a save that covers the chunks before `upto`. `n`: its number among those of its kind.
    `content`: the content of the program that made a save."""

    n: int
    body: bytes | HandedFile
    upto: int | None = None
    content: str = ""

    @property
    def is_save(self) -> bool:
        return self.upto is not None

    def report(self, key: AttemptKey, ref: Ref | None = None) -> Chunk | Save:
        body = self.body if ref is None and isinstance(self.body, bytes) else b""
        if self.upto is not None:
            return Save(key.job, key.attempt, self.n, self.upto, body, ref, self.content)
        return Chunk(key.job, key.attempt, self.n, body, ref)


class StreamContext(Struct, frozen=True, kw_only=True):
    """The context of a stream of chunks. `on_taken`: the sender of this large piece may go on. `hold`:
    whether to stop reading its worker."""

    objects: Objects
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    report: Callable[[Chunk | Save], object]
    on_taken: Callable[[Piece], None]
    hold: Callable[[bool], None]
    on_event: Callable[[ev.Event], None]


class ChunkStream:
    def __init__(self, key: AttemptKey, grant: Grant, context: StreamContext) -> None:
        self._key, self._grant, self._context = key, grant, context
        self._state = chunks.ChunkQueue()
        self._pieces: dict[int, Piece] = {}  # those that wait, by their place
        self._untaken: dict[int, Piece] = {}  # by their place, which is their number to the machine
        self._places = 0
        self._ref: Ref | None = None  # of the first piece, once it was uploaded
        self._uploading: asyncio.Task[None] | None = None
        self._time = asyncio.get_running_loop().time
        self._alarm = Alarm(lambda at: self._step(chunks.Tick(at)))

    @property
    def backlog(self) -> ev.Backlog:
        return chunks.backlog(self._state)

    def add(self, piece: Piece, *, large: bool) -> None:
        """Adds a piece to the stream. A chunk in a file takes no memory here."""
        self._pieces[self._places] = piece
        if large:
            self._untaken[self._places] = piece
        size = len(piece.body) if isinstance(piece.body, bytes) else 0
        queued = chunks.QueuedChunk(self._places, size, large, piece.is_save)
        self._places += 1
        self._step(chunks.Produced(self._time(), queued))

    def verdict_fixed(self) -> None:
        """Drops what the handler still sends, which no longer counts: its worker is read again, and no sender
        waits."""
        self._step(chunks.VerdictFixed(self._time()))
        self._context.hold(False)

    def abandon(self) -> None:
        """Drops the chunks that wait."""
        self._alarm.set(None)
        if self._uploading is not None:
            self._uploading.cancel()
            self._uploading = None
        self._step(chunks.Abandon(self._time()))

    def _step(self, event: chunks.Event) -> None:
        was_full = chunks.is_full(self._state)
        self._state, commands = chunks.step(self._state, event)
        for command in commands:
            match command:
                case chunks.ReportChunk(chunk):
                    self._report(self._pieces.pop(chunk.n))
                case chunks.DropSave(place):
                    del self._pieces[place]
                case chunks.Upload(chunk):
                    piece = self._pieces[chunk.n]
                    self._uploading = self._context.spawn(
                        self._upload(piece), f"{_name(piece)} of {self._key.job}"
                    )
                case chunks.Taken(place):
                    self._context.on_taken(self._untaken.pop(place))
        if not self._state.waiting:
            while self._pieces:
                _close(self._pieces.popitem()[1].body)
        if (is_full := chunks.is_full(self._state)) != was_full:
            self._context.hold(is_full)
        self._alarm.set(chunks.wake_at(self._state))

    def _report(self, piece: Piece) -> None:
        ref, self._ref = self._ref, None
        _close(piece.body)
        self._context.report(piece.report(self._key, ref))

    async def _put(self, piece: Piece) -> Ref:
        objects, grant, body = self._context.objects, self._grant, piece.body
        key = (save_key if piece.is_save else chunk_key)(grant.prefix, piece.n)
        if isinstance(body, bytes):
            kind = "application/octet-stream" if piece.is_save else "application/json"
            return await objects.put_bytes(grant, key, body, kind)
        stored = await objects.put_file(grant, key, body.fd, body.media_type, body.name)
        return Ref(stored.key, stored.size, stored.sha256)

    async def _upload(self, piece: Piece) -> None:
        try:
            self._ref = await self._put(piece)
        except OutboundError as error:
            self._failed(piece, str(error), error.retryable)
        except Exception as error:
            log.exception(
                "job %s, attempt %d: uploading %s failed", self._key.job, self._key.attempt, _name(piece)
            )
            self._failed(piece, repr(error), retryable=False)
        else:
            self._uploading = None  # what follows may abandon the stream, and must not cancel this task
            self._step(chunks.Uploaded(self._time()))
            if not self._state.waiting:
                self._context.on_event(ev.ChunksUploaded(self._time()))

    def _failed(self, piece: Piece, error: str, retryable: bool) -> None:
        self._uploading = None
        what = _name(piece) if piece.is_save else f"{_name(piece)} of the partial output"
        reason = f"{what} could not be uploaded: {error}"
        log.warning("job %s, attempt %d: %s", self._key.job, self._key.attempt, reason)
        self._step(chunks.UploadFailed(self._time(), retryable))
        self._context.on_event(ev.ChunkFailed(self._time(), reason, retryable))


def _name(piece: Piece) -> str:
    return f"{'save' if piece.is_save else 'chunk'} {piece.n}"


def _close(body: bytes | HandedFile) -> None:
    if isinstance(body, HandedFile):
        body.close()
