"""Messages of the tunnel, which an agent opens in addition to its session."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.wire.messages.logs import StreamHello


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of one connection's traffic. `event` is "open", "close", "reset" or empty; `data` is what comes
    next; `taken_bytes`: the reader took so many more, so the other end may send as many."""

    connection: int
    event: str = ""
    data: bytes = b""
    taken_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TunnelPieces:
    hello: StreamHello | None = None
    pieces: tuple[Piece, ...] = ()
