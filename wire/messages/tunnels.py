"""Messages of the tunnel, which an agent opens in addition to its session."""

from __future__ import annotations

from msgspec import Struct

from stoker.wire.messages.logs import StreamHello


class Piece(Struct, frozen=True):
    """A piece of one connection's traffic. `event` is "open", "close", "reset" or empty; `data` is what comes
    next; `taken_bytes`: the reader took so many more, so the other end may send as many."""

    connection: int
    event: str = ""
    data: bytes = b""
    taken_bytes: int = 0


class TunnelPieces(Struct, frozen=True):
    hello: StreamHello | None = None
    pieces: tuple[Piece, ...] = ()
