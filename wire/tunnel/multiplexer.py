"""The state of a tunnel's end: which connections there are, and which piece is sent next. Pure.

    open ──data both ways──> close() ──what was written is sent──> "close" ──> gone
       └──────────────────── reset(), or a piece that does so ──> "reset" ──> gone

- Control opens connections, the agent accepts them; their numbers grow, and none is used twice.
- Each direction has a window: an end sends at most WINDOW_BYTES that the other's reader has not taken. So a
  slow reader holds up its own connection, takes bounded memory, and none of the others.
- Connections take turns, PIECE_BYTES at a time.
- A connection is gone once one end has closed or reset it. What the other end sent meanwhile is ignored.

`received` raises TunnelBroken for what no honest end sends; the tunnel cannot go on after that.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from msgspec import Struct, field

from stoker.wire.messages import Piece

WINDOW_BYTES = 256 * 1024
CONNECTIONS_MAX = 1024
PIECE_BYTES = 32 * 1024
TAKEN_BYTES = WINDOW_BYTES // 4
"""Bytes that a reader has taken are acknowledged in steps of this size."""

PIECES_MAX = 512
"""The most pieces of one message."""


class TunnelBroken(Exception):
    """The other end broke the protocol; the text says how."""


class TooManyConnections(Exception):
    """The tunnel has CONNECTIONS_MAX."""


class Opened(Struct, frozen=True):
    connection: int


class Received(Struct, frozen=True):
    connection: int
    data: bytes


class Closed(Struct, frozen=True):
    """Nothing follows, and nothing that is written is read any more. `reset`: what was received may be
    incomplete."""

    connection: int
    reset: bool


Event: TypeAlias = Opened | Received | Closed


class _Connection(Struct):
    """The state of one connection. `room`: what the other end's reader takes still. `expected`: what this
    end's reader takes still, of that it has not acknowledged yet with `taken`."""

    written: deque[bytes] = field(default_factory=deque)
    written_bytes: int = 0
    room: int = WINDOW_BYTES
    expected: int = WINDOW_BYTES
    taken: int = 0
    announced: bool = True
    closing: bool = False

    @property
    def sendable(self) -> bool:
        return not self.announced or bool(self.written_bytes and self.room) or self.at_end

    @property
    def at_end(self) -> bool:
        return self.closing and not self.written_bytes


class Multiplexer:
    """The multiplexer of one end of a tunnel. `opens`: this end opens the connections."""

    def __init__(self, *, opens: bool) -> None:
        self._opens = opens
        self._last = 0
        self._connections: dict[int, _Connection] = {}
        self._turns: dict[int, None] = {}
        """Connections with something to send, in the order of their turns."""
        self._first: deque[Piece] = deque()
        """Resets, and what readers took: they wait for no turn."""

    @property
    def sendable(self) -> bool:
        return bool(self._first or self._turns)

    def has(self, connection: int) -> bool:
        """Returns whether the connection has not ended."""
        return connection in self._connections

    def unsent(self, connection: int) -> int:
        """Returns the number of bytes that were written and wait to be sent."""
        known = self._connections.get(connection)
        return 0 if known is None else known.written_bytes

    # -- what this end does; all but `open` are ignored for a connection that is gone

    def open(self) -> int:
        """Raises TooManyConnections."""
        if len(self._connections) >= CONNECTIONS_MAX:
            raise TooManyConnections(f"the tunnel has {CONNECTIONS_MAX} connections")
        self._last += 1
        self._connections[self._last] = _Connection(announced=False)
        self._turns[self._last] = None
        return self._last

    def write(self, connection: int, data: bytes) -> None:
        known = self._connections.get(connection)
        if known is not None and not known.closing and data:
            known.written.append(data)
            known.written_bytes += len(data)
            self._queue(connection, known)

    def close(self, connection: int) -> None:
        """Ends it once everything that was written is sent."""
        known = self._connections.get(connection)
        if known is not None:
            known.closing = True
            self._queue(connection, known)

    def reset(self, connection: int) -> None:
        """Ends it at once. What was written and not sent is dropped."""
        known = self._connections.get(connection)
        if known is not None:
            self._drop(connection)
            if known.announced:
                self._first.append(Piece(connection, "reset"))

    def took(self, connection: int, count: int) -> None:
        """Notes that the reader of this end took this many bytes."""
        known = self._connections.get(connection)
        if known is None:
            return
        known.taken += count
        if known.taken >= TAKEN_BYTES:
            known.expected += known.taken
            self._first.append(Piece(connection, taken_bytes=known.taken))
            known.taken = 0

    # -- what is sent

    def take(self, most: int) -> tuple[Piece, ...]:
        """Takes the next pieces: some `most` bytes of data, and none where nothing can be sent."""
        pieces: list[Piece] = []
        while self._first and len(pieces) < PIECES_MAX:
            pieces.append(self._first.popleft())
        size = 0
        while self._turns and size < most and len(pieces) < PIECES_MAX:
            connection = next(iter(self._turns))
            del self._turns[connection]
            piece = self._next(connection, self._connections[connection])
            size += len(piece.data)
            pieces.append(piece)
        return tuple(pieces)

    def _next(self, connection: int, known: _Connection) -> Piece:
        data = _cut(known.written, min(known.room, PIECE_BYTES))
        known.written_bytes -= len(data)
        known.room -= len(data)
        if not known.announced:
            known.announced = True
            self._queue(connection, known)
            return Piece(connection, "open", data)
        if known.at_end:
            self._drop(connection)
            return Piece(connection, "close", data)
        self._queue(connection, known)
        return Piece(connection, data=data)

    def _queue(self, connection: int, known: _Connection) -> None:
        if known.sendable:
            self._turns[connection] = None

    def _drop(self, connection: int) -> None:
        del self._connections[connection]
        self._turns.pop(connection, None)

    # -- what the other end sent

    def received(self, piece: Piece) -> tuple[Event, ...]:
        """Raises TunnelBroken."""
        if piece.event not in ("", "open", "close", "reset"):
            raise TunnelBroken(f"connection {piece.connection}: no event is named {piece.event[:20]!r}")
        events: list[Event] = []
        if piece.event == "open":
            self._accept(piece.connection)
            events.append(Opened(piece.connection))
        elif not 0 < piece.connection <= self._last:
            raise TunnelBroken(f"connection {piece.connection} was never opened")
        known = self._connections.get(piece.connection)
        if known is None:
            return ()
        if piece.data:
            events += self._data(piece.connection, known, piece.data)
        if piece.taken_bytes:
            known.room += piece.taken_bytes
            if known.room > WINDOW_BYTES:
                raise TunnelBroken(f"connection {piece.connection}: more was taken than was sent")
            self._queue(piece.connection, known)
        if piece.event in ("close", "reset"):
            self._drop(piece.connection)
            events.append(Closed(piece.connection, piece.event == "reset"))
        return tuple(events)

    def _accept(self, connection: int) -> None:
        if self._opens:
            raise TunnelBroken(f"connection {connection} was opened from the end that only accepts")
        if connection <= self._last:
            raise TunnelBroken(f"connection {connection} was opened after connection {self._last}")
        if len(self._connections) >= CONNECTIONS_MAX:
            raise TunnelBroken(f"more than {CONNECTIONS_MAX} connections were opened")
        self._last = connection
        self._connections[connection] = _Connection()

    def _data(self, connection: int, known: _Connection, data: bytes) -> list[Event]:
        known.expected -= len(data)
        if known.expected < 0:
            raise TunnelBroken(f"connection {connection}: more was sent than its reader had taken")
        if known.closing:
            self.took(connection, len(data))  # nothing reads it; what is written here must still be sent
            return []
        return [Received(connection, data)]


def _cut(written: deque[bytes], most: int) -> bytes:
    """Takes the first bytes out of what was written."""
    parts, size = [], 0
    while written and size < most:
        part = written.popleft()
        if size + len(part) > most:
            written.appendleft(part[most - size :])
            part = part[: most - size]
        parts.append(part)
        size += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
