"""A `Stream` over a function that reads bytes and one that writes bytes. Both gRPC adapters use it.

    send --> encode --> outbox --writer task--> transport
    transport --reader task--> join --> inbox --> decode --> receive

- One task reads and one writes, so neither waits for the other. A caller may cancel `receive` and lose no
  message; gRPC itself would end the call.
- Both queues are bounded in bytes. A full outbox makes `send` wait. A full inbox stops the reader, and so
  in the end the other side's `send`.
- Messages wait in the inbox as bytes: decoded they take many times as much, so `receive_all` has a limit.
- `end` lets the writer finish what was sent before, for `LINGER_S` seconds at most.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from stoker.wire.codec import Decoder, WireError, encode
from stoker.wire.messages import FromAgent, FromControl, LogLines, LogWanted, TunnelPieces
from stoker.wire.parts import PARTS_MAX, UNCOUNTED_BYTES
from stoker.wire.streams import StreamEnded

In = TypeVar("In")
Out = TypeVar("Out", bound=FromAgent | FromControl | LogLines | LogWanted | TunnelPieces)

QUEUE_MAX_BYTES = 8 * 1024 * 1024
"""Bytes that a queue takes before its writers wait. One message may go over it."""

OVERHEAD_BYTES = 128
"""What a queued message takes in addition to its bytes."""

PARTS_AT_ONCE = PARTS_MAX
"""How many parts the messages of one `receive_all` may have, before its last."""

LINGER_S = 5.0
"""How long `run` writes what is left after the end."""

Read = Callable[[], Awaitable[object]]
"""The next transport message; anything but bytes after the other side's last. May raise any error."""

Write = Callable[[bytes], Awaitable[None]]
"""Returns when the transport has accepted the bytes. May raise any error."""


class ByteQueue:
    """A queue with a limit in bytes, for one reader and any number of writers.

    `filled` is set while there is something to read, `roomy` while there is room; both are set once the queue
    is closed. It can be read empty after that.
    """

    def __init__(self, limit: int = QUEUE_MAX_BYTES) -> None:
        self.filled = asyncio.Event()
        self.roomy = asyncio.Event()
        self.roomy.set()
        self._limit = limit
        self._items: deque[bytes] = deque()
        self._size = 0
        self._closed = False

    def put(self, item: bytes) -> None:
        self._items.append(item)
        self._size += len(item) + OVERHEAD_BYTES
        self.filled.set()
        if self._size >= self._limit and not self._closed:
            self.roomy.clear()

    def pop(self) -> bytes | None:
        """Removes and returns the oldest item; returns None if there is none."""
        if not self._items:
            return None
        item = self._items.popleft()
        self._size -= len(item) + OVERHEAD_BYTES
        if self._size < self._limit:
            self.roomy.set()
        if not self._items and not self._closed:
            self.filled.clear()
        return item

    def close(self, *, drop: bool = False) -> None:
        self._closed = True
        if drop:
            self._items.clear()
        self.filled.set()
        self.roomy.set()


class DuplexStream(Generic[In, Out]):
    """Implements `wire.streams.Stream` while its owner runs `run`. A subclass implements the transport:
    what its errors mean, and why the other side ended."""

    def __init__(self, decoder: Decoder[In], read: Read, write: Write, limit: int = QUEUE_MAX_BYTES) -> None:
        self._decoder, self._read, self._write = decoder, read, write
        self._inbox = ByteQueue(limit)
        self._outbox = ByteQueue(limit)
        self._reason: str | None = None
        self._over = asyncio.Event()
        self.spoken = False
        """Whether a message of the other side could be decoded."""

    async def receive(self) -> In:
        await self._inbox.filled.wait()
        whole = self._inbox.pop()
        if whole is None:
            raise StreamEnded(self._reason or "ended")
        try:
            message = self._decoder.read(whole)
        except WireError as error:
            self._broken(error)
            raise StreamEnded(str(self._reason)) from None
        self.spoken = True
        return message

    async def receive_all(self) -> Sequence[In]:
        await self._inbox.filled.wait()
        got: list[In] = []
        size = parts = 0
        try:
            while parts <= PARTS_AT_ONCE and (whole := self._inbox.pop()) is not None:
                size += len(whole)
                if size > UNCOUNTED_BYTES:
                    parts += self._decoder.count(whole, PARTS_AT_ONCE)
                got.append(self._decoder.read(whole))
        except WireError as error:
            self._broken(error)
        if not got:
            raise StreamEnded(self._reason or "ended")
        self.spoken = True
        return got

    def _broken(self, error: WireError) -> None:
        self.lost(f"the other side broke the protocol: {error}")
        self._inbox.close(drop=True)

    async def send(self, message: Out) -> None:
        """Raises WireError, and sends nothing, if the message cannot be encoded."""
        fragments = encode(message)
        await self._outbox.roomy.wait()
        if self._reason is not None:
            raise StreamEnded(self._reason)
        for fragment in fragments:  # without an await: fragments of one message must not be interleaved
            self._outbox.put(fragment)

    def end(self, reason: str = "ended") -> None:
        self._stop(reason, drop=False)

    @property
    def reason(self) -> str | None:
        """The reason why the stream ended; None while it has not."""
        return self._reason

    def lost(self, reason: str) -> None:
        """Ends a stream whose transport is gone: drops what is not written; what was read can be received."""
        self._stop(reason, drop=True)

    def _stop(self, reason: str, *, drop: bool) -> None:
        if self._reason is None:
            self._reason = reason
        self._inbox.close()
        self._outbox.close(drop=drop)
        self._decoder.drop()
        self._over.set()

    async def run(self, half_close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Reads and writes until the stream has ended and what was sent is written, or LINGER_S has passed.

        A client passes `half_close`, and returns after it has read the server's end as well.
        """
        reader = asyncio.create_task(self._reading())
        writer = asyncio.create_task(self._writing())
        for task in (reader, writer):
            task.add_done_callback(self._task_ended)
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

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Ends the stream if its task failed: gRPC raises CancelledError from a call that another task has
        cancelled."""
        if task.cancelled():
            self.lost("the call was cancelled")
        elif error := task.exception():
            self.lost(self._why_lost(error))

    def _why_lost(self, error: BaseException) -> str:
        return f"the transport failed: {error!r}"

    async def _why_ended(self) -> str:
        return "the other side ended the stream"

    async def _reading(self) -> None:
        try:
            while isinstance(data := await self._read(), bytes):
                whole = self._decoder.join(data)
                if whole is None or self._reason is not None:
                    continue
                self._inbox.put(whole)
                await self._inbox.roomy.wait()
            self._stop(await self._why_ended(), drop=False)
        except WireError as error:
            self._broken(error)

    async def _writing(self) -> None:
        await self._outbox.filled.wait()
        while (fragment := self._outbox.pop()) is not None:
            await self._write(fragment)
            await self._outbox.filled.wait()
