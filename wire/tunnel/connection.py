"""The connection of a tunnel, as the transport of asyncio's reader and writer.

- A writer with HIGH_BYTES unsent waits in `drain`. A reader that is not read holds up its own connection
  only: what arrives for it is bounded by the window (`wire.tunnel.multiplexer`).
- `close` sends what was written, then the end. `abort` drops it and resets. Either ends both directions, so a
  half-closed connection at one end is a closed one at the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from stoker.wire.tunnel.multiplexer import PIECE_BYTES, Multiplexer

HIGH_BYTES = 64 * 1024
LOW_BYTES = 16 * 1024
"""A writer waits once the first of these is unsent, until only the second is."""


class Connection(asyncio.Transport):
    """A connection in a tunnel. `wake`: there is something to send. `forget`: the connection is over. Bytes
    that the reader does not take yet are kept."""

    def __init__(
        self,
        multiplexer: Multiplexer,
        number: int,
        protocol: asyncio.StreamReaderProtocol,
        wake: Callable[[], None],
        forget: Callable[[int], None],
    ) -> None:
        super().__init__({"peername": None})
        self._multiplexer, self._number, self._protocol = multiplexer, number, protocol
        self._wake, self._forget = wake, forget
        self._received = bytearray()
        self._ending = False
        self._reading = True
        self._writing = True
        self._closed = False
        self._lost = False

    # -- the writer's side

    def write(self, data: Any) -> None:
        if self._closed:
            return
        self._multiplexer.write(self._number, bytes(data))
        self._wake()
        if self._writing and self._multiplexer.unsent(self._number) >= HIGH_BYTES:
            self._writing = False
            self._protocol.pause_writing()

    def sent(self) -> None:
        """Resumes writing once enough was sent, and ends a closed connection of which all was sent."""
        if self._multiplexer.unsent(self._number) <= LOW_BYTES:
            self._resume_writing()
        if self._closed and not self._multiplexer.has(self._number):
            self.lost(None)

    def _resume_writing(self) -> None:
        if not self._writing:
            self._writing = True
            self._protocol.resume_writing()

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._ending:
            self.lost(None)
        elif not self._closed:
            self._closed = True
            self._received.clear()
            self._multiplexer.close(self._number)
            self._wake()

    def abort(self) -> None:
        self._multiplexer.reset(self._number)
        self._wake()
        self.lost(None)

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._multiplexer.unsent(self._number)

    # -- the reader's side

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        """Resumes reading; what was kept follows later: the reader that calls this is not waiting yet."""
        self._reading = True
        asyncio.get_running_loop().call_soon(self._pass_on_received)

    def _pass_on_received(self) -> None:
        while self._received and self._reading:
            data = bytes(self._received[:PIECE_BYTES])
            del self._received[:PIECE_BYTES]
            self._pass_on(data)
        if self._ending and not self._received:
            self.lost(None)
        self._wake()

    def received(self, data: bytes) -> None:
        if self._reading and not self._received:
            self._pass_on(data)
        else:
            self._received += data

    def _pass_on(self, data: bytes) -> None:
        self._protocol.data_received(data)
        self._multiplexer.took(self._number, len(data))

    # -- its end

    def ended(self, *, reset: bool) -> None:
        """Ends the connection, as the other end did: what came before is read first, unless it was reset."""
        self._closed = True
        self._resume_writing()
        if reset:
            self.lost(ConnectionResetError("the other end of the tunnel reset the connection"))
        elif self._received:
            self._ending = True
        else:
            self.lost(None)

    def lost(self, error: Exception | None) -> None:
        if not self._lost:
            self._closed = self._lost = True
            self._received.clear()
            self._forget(self._number)
            self._protocol.connection_lost(error)
