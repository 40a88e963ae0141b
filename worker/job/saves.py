"""Saves: the state from which a later attempt at the job goes on. Their form in a frame, and their checks.

What the handler measured until then goes with the state, since a bill counts what the whole job measured:

    {"frames": 50}\n<the handler's bytes>
"""

from __future__ import annotations

import json

from stoker.worker.errors import HandlerError
from stoker.worker.frames import BODY_MAX, SAVE_MAX
from stoker.worker.payloads.files import open_file
from stoker.worker.sdk import File


def packed(state: bytes, metrics: dict[str, int]) -> bytes:
    return json.dumps(metrics).encode() + b"\n" + state


def unpacked(body: bytes) -> tuple[bytes, dict[str, int]]:
    """Returns the state, and what was measured before it was saved."""
    metrics, _, state = body.partition(b"\n")
    return state, json.loads(metrics)


def bytes_of(state: object, scratch: str) -> bytes:
    """Returns the bytes of a state, or of the file that holds it. Raises HandlerError."""
    if isinstance(state, File):
        file = open_file(state, scratch)
        with open(file.fd, "rb") as opened:
            return opened.read(SAVE_MAX + 1)
    if isinstance(state, bytes | bytearray | memoryview):
        return bytes(state)
    raise HandlerError(f"job.save takes bytes or a File, not {type(state).__name__}: {_HINT}")


_HINT = "write a value as json.dumps(value).encode(), an array as its bytes"


def check_kept(upto: int, too_large: tuple[int, int] | None) -> None:
    """Raises HandlerError if the save covers a chunk that would not come back. `too_large`: the number and
    the bytes of the first such chunk."""
    if too_large is not None and upto > too_large[0]:
        raise HandlerError(
            f"a save cannot cover chunk {too_large[0]}, which has {too_large[1]} bytes: only chunks of up to"
            f" {BODY_MAX} bytes come back in the next attempt (`job.kept`); emit several smaller ones"
        )


def checked_upto(upto: int | None, saved: int, emitted: int) -> int:
    """Returns how many chunks a save covers, all by default. `saved`: how many the save before it covers.
    Raises HandlerError."""
    if upto is None:
        return emitted
    if isinstance(upto, bool) or not isinstance(upto, int) or not saved <= upto <= emitted:
        allowed = f"from {saved}, what the last save covers, to {emitted}, the chunks so far"
        raise HandlerError(f"upto must be {allowed}; not {upto!r}")
    return upto
