"""Counts what a JSON text would become in memory, before it is read. Pure.

Ten megabytes can name 800,000 keys, and reading them holds the interpreter for seconds, whichever thread
reads: so there is a limit for the keys, lists and objects, and one for all values. Strings cost what their
bytes do. The text may be no JSON: the parser finds that.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker.control.errors import BadRequest

KEYS_MOST = 100_000
VALUES_MOST = 2_000_000
COUNTED_BYTES = 64 * 1024
"""Bytes that are counted in one step: other threads run between the steps."""


def refuse_many_parts(body: bytes, keys_most: int = KEYS_MOST) -> None:
    """Raises BadRequest."""
    keys = values = 0
    for text in _outside_strings(body):
        keys += text.count(b":") + text.count(b"[") + text.count(b"{")
        values += text.count(b",")
        if keys > keys_most:
            raise BadRequest(f"the body may have {keys_most:,} keys, lists and objects at most; it has more")
        if values > VALUES_MOST:
            raise BadRequest(f"the body may have {VALUES_MOST:,} values at most; it has more")


def _outside_strings(body: bytes) -> Iterator[bytes]:
    at, inside = 0, False
    while at < len(body):
        piece = body[at : at + COUNTED_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = body[at : at + COUNTED_BYTES + 1]  # no escape is cut in two
        at += len(piece)
        parts = piece.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0
