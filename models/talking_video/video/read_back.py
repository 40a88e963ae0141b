"""The encoded video of a file, read back from its parts, so that another file goes on with the same packets.

    the parts of an earlier attempt   packets 0 … 143
    the end of it, from its save          packets 100 … 149   the muxer may not have written the last ones yet
    read back                         packets 0 … 149

In an MP4 file the pieces of a packet have their lengths in front; an encoder puts start codes there, and the
muxer expects these again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import av

from stoker.models.talking_video.sampling.chunks import FPS

END: Final = 2 * FPS
"""Packets at the end of a video that its save holds. At the lowest rate of audio the muxer holds back 16: it
waits for audio of the same time, and for a whole fragment."""

_START_CODE: Final = b"\0\0\0\1"
_IDR: Final = 5
"""The type of a piece with a picture that refers to none before it."""


class CannotGoOn(Exception):
    """The packets of a video cannot be read back; the message says why."""


@dataclass(frozen=True, slots=True)
class EncodedFrame:
    """A packet as its encoder made it, of one frame. `key`: a player can start there."""

    data: bytes
    key: bool


def read_back(parts: Path, end: Sequence[EncodedFrame], frames: int) -> Iterator[Any]:
    """Yields the packets of the first `frames` frames: of the file with all parts, then those of `end`.
    Raises CannotGoOn before the first where some between the two are missing."""
    first = frames - len(end)
    try:
        written = sum(1 for _ in _packets(parts)) if first else 0
    except av.error.FFmpegError as error:
        raise CannotGoOn(f"the parts of the video cannot be read: {error}") from None
    if written < first:
        raise CannotGoOn(f"the parts have {written} frames, and the save begins at frame {first}")
    return _joined(parts, end, first)


def _joined(parts: Path, end: Sequence[EncodedFrame], first: int) -> Iterator[Any]:
    for number, packet in zip(range(first), _packets(parts), strict=False):
        yield _packet(*_as_encoded(bytes(packet)), number)
    for number, one in enumerate(end, first):
        yield _packet(one.data, one.key, number)


def _packets(parts: Path) -> Iterator[Any]:
    with av.open(str(parts)) as file:
        yield from (packet for packet in file.demux(video=0) if packet.size)


def _packet(data: bytes, key: bool, number: int) -> Any:
    packet = av.Packet(data)
    packet.pts = packet.dts = number
    packet.time_base, packet.is_keyframe = Fraction(1, FPS), key
    return packet


def _as_encoded(data: bytes) -> tuple[bytes, bool]:
    """Returns the packet with start codes, and whether a player can start at this packet. The type of its
    pieces decides that: the demuxer marks the first packet of some fragments where no player can start."""
    coded, at, key = bytearray(data), 0, False
    while at < len(coded):
        size = int.from_bytes(coded[at : at + 4], "big")
        coded[at : at + 4] = _START_CODE
        key = key or coded[at + 4] & 31 == _IDR
        at += 4 + size
    return bytes(coded), key
