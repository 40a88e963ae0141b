"""One encoded message as pieces that fit into one transport message, and the pieces as one again.

Pure: bytes in, bytes out. Pieces of one message follow each other on an ordered stream, nothing between
them; a reader that loses one loses the stream.

    idle --piece--> gathering --last piece--> idle, with the message
                        |---- a whole message, or more than TOTAL_MAX ----> FragmentError
"""

from __future__ import annotations

MESSAGE_MAX = 256 * 1024
"""No transport message is larger than this."""

PIECE_MAX = MESSAGE_MAX - 64
"""What a piece may hold: its envelope (two tags, a length, a flag) takes some of MESSAGE_MAX."""

TOTAL_MAX = 64 * 1024 * 1024
"""No message is larger than this, however it is cut: it bounds what a peer can make the other side hold."""


class FragmentError(Exception):
    """A message over the limit, or pieces that do not follow each other; the text says which."""


def split(data: bytes, piece: int = PIECE_MAX, total: int = TOTAL_MAX) -> list[bytes]:
    """`data` in pieces, at least one. Raises FragmentError when it is over `total`."""
    if len(data) > total:
        raise FragmentError(f"a message of {len(data)} bytes is over the limit of {total}")
    return [data[start : start + piece] for start in range(0, len(data), piece)] or [b""]


class Joiner:
    """The reading side. After a FragmentError it is of no further use."""

    def __init__(self, total: int = TOTAL_MAX) -> None:
        self._total = total
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes, *, last: bool) -> bytes | None:
        """The whole message with its last piece, None before."""
        if not piece:
            raise FragmentError("an empty fragment")
        self._size += len(piece)
        if self._size > self._total:
            raise FragmentError(f"fragments of {self._size} bytes are over the limit of {self._total}")
        self._pieces.append(piece)
        if not last:
            return None
        whole = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return whole

    def refuse_whole(self) -> None:
        """To be called for a message that is no fragment."""
        if self._pieces:
            raise FragmentError(f"a whole message came between fragments, after {self._size} bytes")
