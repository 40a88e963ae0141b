"""The shell of `agent.pieces`: holds the bodies of the pieces that wait, and moves them to the object store.

Made for an attempt at its first large piece; before that its pieces are reported as they come. What it makes
known of its own accord goes to the attempt's machine as events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from stoker.agent import attempt_events as ev
from stoker.agent import pieces
from stoker.agent.alarm import Alarm
from stoker.agent.seams import Objects
from stoker.agent.uploads import HandedFile
from stoker.outbound.errors import OutboundError
from stoker.wire.messages import AttemptKey, Chunk, Grant, Ref
from stoker.wire.names import chunk_key

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`took`: the sender of this large piece may go on. `hold`: whether its worker is not to be read."""

    objects: Objects
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    report: Callable[[Chunk], object]
    took: Callable[[int], None]
    hold: Callable[[bool], None]
    event: Callable[[ev.Event], None]


class PieceStream:
    def __init__(self, key: AttemptKey, grant: Grant, around: Surroundings) -> None:
        self._key = key
        self._grant = grant
        self._around = around
        self._state = pieces.Pieces()
        self._bodies: deque[bytes | HandedFile] = deque()  # of what waits, in the same order
        self._ref: Ref | None = None  # of the first, once it has been moved
        self._moving: asyncio.Task[None] | None = None
        self._alarm = Alarm(lambda at: self._tell(pieces.Tick(at)))

    @property
    def tail(self) -> ev.Tail:
        return pieces.tail(self._state)

    def add(self, n: int, body: bytes | HandedFile, *, large: bool) -> None:
        """A file takes no room here."""
        self._bodies.append(body)
        size = len(body) if isinstance(body, bytes) else 0
        self._tell(pieces.Produced(_now(), pieces.Piece(n, size, large)))

    def unheard(self) -> None:
        """Its verdict is fixed: the worker is read again, and nobody in it waits any more."""
        self._tell(pieces.Unheard(_now()))
        self._around.hold(False)

    def abandon(self) -> None:
        """What waits is dropped."""
        self._alarm.set(None)
        if self._moving is not None:
            self._moving.cancel()
            self._moving = None
        self._tell(pieces.Abandon(_now()))

    def _tell(self, event: pieces.Event) -> None:
        was_full = pieces.is_full(self._state)
        self._state, commands = pieces.step(self._state, event)
        for command in commands:
            match command:
                case pieces.Tell(piece):
                    self._report(piece.n, self._bodies.popleft())
                case pieces.Move(piece):
                    moving = self._move(piece.n, self._bodies[0])
                    self._moving = self._around.spawn(moving, f"piece {piece.n} of {self._key.job}")
                case pieces.Took(n):
                    self._around.took(n)
        if not self._state.waiting:
            while self._bodies:
                _close(self._bodies.popleft())
        if (is_full := pieces.is_full(self._state)) != was_full:
            self._around.hold(is_full)
        self._alarm.set(pieces.wake_at(self._state))

    def _report(self, n: int, body: bytes | HandedFile) -> None:
        ref, self._ref = self._ref, None
        _close(body)
        value = body if ref is None and isinstance(body, bytes) else b""
        self._around.report(Chunk(self._key.job, self._key.attempt, n, value, ref))

    async def _put(self, key: str, body: bytes | HandedFile) -> Ref:
        objects, grant = self._around.objects, self._grant
        if isinstance(body, bytes):
            return await objects.put_bytes(grant, key, body, "application/json")
        stored = await objects.put_file(grant, key, body.fd, body.media_type, body.name)
        return Ref(stored.key, stored.size, stored.sha256)

    async def _move(self, n: int, body: bytes | HandedFile) -> None:
        try:
            self._ref = await self._put(chunk_key(self._grant.prefix, n), body)
        except OutboundError as error:
            self._failed(n, str(error), error.retryable)
        except Exception as error:
            log.exception("uploading piece %d of %s failed", n, self._key)
            self._failed(n, repr(error), retryable=False)
        else:
            self._moving = None  # what follows may end all of it, and must not cancel this task
            self._tell(pieces.Moved(_now()))
            if not self._state.waiting:
                self._around.event(ev.PiecesOut(_now()))

    def _failed(self, n: int, error: str, retryable: bool) -> None:
        self._moving = None
        words = f"piece {n} of the partial output could not be uploaded: {error}"
        log.warning("job %s: %s", self._key.job, words)
        self._tell(pieces.MoveFailed(_now(), retryable))
        self._around.event(ev.PieceFailed(_now(), words, retryable))


def _close(body: bytes | HandedFile) -> None:
    if isinstance(body, HandedFile):
        body.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
