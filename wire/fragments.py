"""Splits an encoded message into fragments that fit into a transport message, and joins them again. Pure.

A stream refuses transport messages over MESSAGE_MAX. Fragments of one message follow each other on an ordered
stream, with nothing between them; a reader that loses one loses the stream.

    idle --fragment--> gathering --last fragment--> idle, with the message
                           |---- a whole message, or more than the total ----> FragmentError
"""

from __future__ import annotations

MESSAGE_MAX = 256 * 1024
"""No transport message is larger than this."""

FRAGMENT_MAX = MESSAGE_MAX - 64
"""The most bytes of a fragment: its envelope (two tags, a length, a flag) takes some of MESSAGE_MAX."""

TOTAL_MAX = 64 * 1024 * 1024
"""No message to an agent is larger than this: it bounds the memory that control can make an agent use."""

REPORTED_MAX = 32 * 1024 * 1024
"""No message to control is larger than this."""

FIRST_MAX = 4 * 1024 * 1024
"""The first message of a stream is not larger than this: it arrives before the sender is known."""


class FragmentError(Exception):
    """A message over the limit, or fragments that do not follow each other; the message says which."""


def split(data: bytes, size: int = FRAGMENT_MAX, total: int = TOTAL_MAX) -> list[bytes]:
    """Splits `data` into fragments of `size` bytes, at least one. Raises FragmentError if `data` is over
    `total`."""
    if len(data) > total:
        raise FragmentError(f"a message of {len(data)} bytes is over the limit of {total}")
    return [data[start : start + size] for start in range(0, len(data), size)] or [b""]


class Joiner:
    """Joins fragments to messages of at most `total` bytes, which may be changed. It must not be used after a
    FragmentError. While `gathered` is not empty, only a fragment may follow."""

    def __init__(self, total: int = TOTAL_MAX) -> None:
        self.total = total
        self.gathered = bytearray()  # not a list: fragments of one byte would take forty times their size

    def add(self, fragment: bytes, *, last: bool) -> bytes | None:
        """Returns the whole message after its last fragment, None before."""
        if not fragment:
            raise FragmentError("an empty fragment")
        size = len(self.gathered) + len(fragment)
        if size > self.total:
            raise FragmentError(f"fragments of {size} bytes are over the limit of {self.total}")
        self.gathered += fragment
        if not last:
            return None
        whole = bytes(self.gathered)
        self.drop()
        return whole

    def drop(self) -> None:
        self.gathered = bytearray()
