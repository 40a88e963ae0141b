"""A `Stream` over any pair of "read bytes" and "write bytes": what both gRPC adapters have in common.

    send --> encode --> outbox --writer task--> transport --reader task--> decode --> inbox --> receive

- One task reads and one writes, so neither waits for the other, and a caller may give up on `receive`
  (a timeout, a cancel) without a word being lost: gRPC itself would end the call.
- Both boxes are bounded in bytes. A full outbox makes `send` wait; a full inbox stops the reading, and
  with it, in the end, the other side's `send`.
- `end` lets the writer finish what was sent before, for `LINGER_S` at most.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from stoker.wire.codec import Decoder, encode
from stoker.wire.convert import WireError
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted
from stoker.wire.streams import StreamEnded

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out", bound=FromAgent | FromControl | LogLines | LogWanted)

BOX_MAX = 8 * 1024 * 1024
"""Bytes a box takes before whoever fills it waits. One message may go over it."""

LINGER_S = 5.0

Read = Callable[[], Awaitable[bytes | None]]
"""The next transport message; None after the other side's last. Raises StreamEnded when it broke."""

Write = Callable[[bytes], Awaitable[None]]
"""Returns when the transport has taken it. Raises StreamEnded when it broke."""


class Box(Generic[T]):
    """A queue of sized things: one taker, any number of givers, and an end after which takers drain it."""

    def __init__(self, limit: int = BOX_MAX) -> None:
        self._limit = limit
        self._things: deque[tuple[T, int]] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._roomy = asyncio.Event()
        self._roomy.set()
        self._closed = False

    def put(self, thing: T, size: int) -> None:
        self._things.append((thing, size))
        self._size += size
        self._filled.set()
        if self._size >= self._limit:
            self._roomy.clear()

    async def room(self) -> None:
        """Returns when there is room, or when the box is closed."""
        await self._roomy.wait()

    async def take(self) -> T | None:
        """The oldest thing; None when the box is closed and empty. A cancelled `take` has taken nothing."""
        while not self._things:
            if self._closed:
                return None
            self._filled.clear()
            await self._filled.wait()
        return self._next()

    def take_rest(self) -> list[T]:
        """Whatever there is."""
        return [self._next() for _ in range(len(self._things))]

    def _next(self) -> T:
        thing, size = self._things.popleft()
        self._size -= size
        if self._size < self._limit:
            self._roomy.set()
        return thing

    def close(self, *, drop: bool = False) -> None:
        self._closed = True
        if drop:
            self._things.clear()
        self._filled.set()
        self._roomy.set()


class DuplexStream(Generic[In, Out]):
    """Implements `wire.streams.Stream` while its owner runs `run`."""

    def __init__(self, decoder: Decoder[In], read: Read, write: Write, limit: int = BOX_MAX) -> None:
        self._decoder = decoder
        self._read = read
        self._write = write
        self._inbox: Box[In] = Box(limit)
        self._outbox: Box[bytes] = Box(limit)
        self._reason: str | None = None
        self._over = asyncio.Event()

    async def receive(self) -> In:
        got = await self._inbox.take()
        if got is None:
            raise StreamEnded(self._reason or "ended")
        return got

    def more(self) -> Sequence[In]:
        return self._inbox.take_rest()

    async def send(self, message: Out) -> None:
        """Raises WireError, and sends nothing, when the message cannot be written."""
        pieces = encode(message)
        await self._outbox.room()
        if self._reason is not None:
            raise StreamEnded(self._reason)
        for piece in pieces:  # without a pause: pieces of one message follow each other
            self._outbox.put(piece, len(piece))

    def end(self, reason: str = "ended") -> None:
        self._stop(reason, drop=False)

    @property
    def reason(self) -> str | None:
        """Why it ended; None while it has not."""
        return self._reason

    def lost(self, reason: str) -> None:
        """The transport is gone: what waits to be written is dropped, what was read can be received."""
        self._stop(reason, drop=True)

    def _stop(self, reason: str, *, drop: bool) -> None:
        if self._reason is None:
            self._reason = reason
        self._inbox.close()
        self._outbox.close(drop=drop)
        self._over.set()

    async def run(self, half_close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Moves bytes until the stream is over and what was sent is written, or LINGER_S passed.

        A client says how it half-closes, and is done when the server's end was read as well.
        """
        reader = asyncio.create_task(self._reading())
        writer = asyncio.create_task(self._writing())
        for task in (reader, writer):
            task.add_done_callback(self._mover_ended)
        try:
            await self._over.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await asyncio.wait({writer})
                    if half_close is not None:
                        await half_close()
                        await asyncio.wait({reader})
        finally:
            self.lost("the stream was dropped")
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    def _mover_ended(self, task: asyncio.Task[None]) -> None:
        """gRPC raises CancelledError out of a call that was cancelled by somebody else."""
        if task.cancelled():
            self.lost("the call was cancelled")
        elif error := task.exception():
            self.lost(f"the transport failed: {error!r}")

    async def _reading(self) -> None:
        try:
            while (data := await self._read()) is not None:
                message = self._decoder.feed(data)
                if message is None or self._reason is not None:
                    continue
                self._inbox.put(message, len(data))
                await self._inbox.room()
            self._stop("the other side ended the stream", drop=False)
        except StreamEnded as ended:
            self.lost(str(ended))
        except WireError as error:
            self.lost(f"the other side broke the protocol: {error}")

    async def _writing(self) -> None:
        try:
            while (piece := await self._outbox.take()) is not None:
                await self._write(piece)
        except StreamEnded as ended:
            self.lost(str(ended))
