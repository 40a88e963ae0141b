"""The shell of `agent.jobs.attempts.chunks`: holds the bodies of the chunks that wait, and uploads the large
ones.

Made for an attempt at its first large chunk; until then its chunks are reported as they come. What happens to
an upload goes to the attempt's machine as events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from stoker.agent.alarm import Alarm, loop_time
from stoker.agent.interfaces import Objects
from stoker.agent.jobs.attempts import chunks
from stoker.agent.jobs.attempts import events as ev
from stoker.agent.jobs.uploads.payloads import HandedFile
from stoker.outbound.errors import OutboundError
from stoker.wire.messages import AttemptKey, Chunk, Grant, Ref
from stoker.wire.names import chunk_key

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamContext:
    """`on_taken`: the sender of this large chunk may go on. `hold`: whether to stop reading its worker."""

    objects: Objects
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    report: Callable[[Chunk], object]
    on_taken: Callable[[int], None]
    hold: Callable[[bool], None]
    on_event: Callable[[ev.Event], None]


class ChunkStream:
    def __init__(self, key: AttemptKey, grant: Grant, context: StreamContext) -> None:
        self._key = key
        self._grant = grant
        self._context = context
        self._state = chunks.ChunkQueue()
        self._bodies: deque[bytes | HandedFile] = deque()  # of the chunks that wait, in the same order
        self._ref: Ref | None = None  # of the first chunk, once it was uploaded
        self._uploading: asyncio.Task[None] | None = None
        self._alarm = Alarm(lambda at: self._step(chunks.Tick(at)))

    @property
    def backlog(self) -> ev.Backlog:
        return chunks.backlog(self._state)

    def add(self, n: int, body: bytes | HandedFile, *, large: bool) -> None:
        """Adds a chunk to the stream. A chunk in a file takes no memory here."""
        self._bodies.append(body)
        size = len(body) if isinstance(body, bytes) else 0
        self._step(chunks.Produced(loop_time(), chunks.QueuedChunk(n, size, large)))

    def verdict_fixed(self) -> None:
        """Drops what the handler still sends, which no longer counts: its worker is read again, and no sender
        waits."""
        self._step(chunks.VerdictFixed(loop_time()))
        self._context.hold(False)

    def abandon(self) -> None:
        """Drops the chunks that wait."""
        self._alarm.set(None)
        if self._uploading is not None:
            self._uploading.cancel()
            self._uploading = None
        self._step(chunks.Abandon(loop_time()))

    def _step(self, event: chunks.Event) -> None:
        was_full = chunks.is_full(self._state)
        self._state, commands = chunks.step(self._state, event)
        for command in commands:
            match command:
                case chunks.ReportChunk(chunk):
                    self._report(chunk.n, self._bodies.popleft())
                case chunks.Upload(chunk):
                    upload = self._upload(chunk.n, self._bodies[0])
                    self._uploading = self._context.spawn(upload, f"chunk {chunk.n} of {self._key.job}")
                case chunks.Taken(n):
                    self._context.on_taken(n)
        if not self._state.waiting:
            while self._bodies:
                _close(self._bodies.popleft())
        if (is_full := chunks.is_full(self._state)) != was_full:
            self._context.hold(is_full)
        self._alarm.set(chunks.wake_at(self._state))

    def _report(self, n: int, body: bytes | HandedFile) -> None:
        ref, self._ref = self._ref, None
        _close(body)
        value = body if ref is None and isinstance(body, bytes) else b""
        self._context.report(Chunk(self._key.job, self._key.attempt, n, value, ref))

    async def _put(self, key: str, body: bytes | HandedFile) -> Ref:
        objects, grant = self._context.objects, self._grant
        if isinstance(body, bytes):
            return await objects.put_bytes(grant, key, body, "application/json")
        stored = await objects.put_file(grant, key, body.fd, body.media_type, body.name)
        return Ref(stored.key, stored.size, stored.sha256)

    async def _upload(self, n: int, body: bytes | HandedFile) -> None:
        try:
            self._ref = await self._put(chunk_key(self._grant.prefix, n), body)
        except OutboundError as error:
            self._failed(n, str(error), error.retryable)
        except Exception as error:
            log.exception("uploading chunk %d of %s failed", n, self._key)
            self._failed(n, repr(error), retryable=False)
        else:
            self._uploading = None  # what follows may abandon the stream, and must not cancel this task
            self._step(chunks.Uploaded(loop_time()))
            if not self._state.waiting:
                self._context.on_event(ev.ChunksUploaded(loop_time()))

    def _failed(self, n: int, error: str, retryable: bool) -> None:
        self._uploading = None
        reason = f"chunk {n} of the partial output could not be uploaded: {error}"
        log.warning("job %s: %s", self._key.job, reason)
        self._step(chunks.UploadFailed(loop_time(), retryable))
        self._context.on_event(ev.ChunkFailed(loop_time(), reason, retryable))


def _close(body: bytes | HandedFile) -> None:
    if isinstance(body, HandedFile):
        body.close()
