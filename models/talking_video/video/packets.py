"""The encoded video of a file that is being made, from which another file goes on.

    stretch   frames, number of packets (two u32), then the packets
    packet    size (u32), time in frames (u32), whether a player can start there (u8), then its bytes

The packets wait in a file and not in memory: ten minutes take the memory of one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import av

from stoker.models.talking_video.sampling.chunks import FPS

KEPT_MAX: Final = 32_000_000
"""Bytes of encoded video that are kept for saves: some minutes."""

_STRETCH: Final = struct.Struct("<II")
_PACKET: Final = struct.Struct("<IIB")


class KeptPackets:
    """The packets of a video so far, in a new file at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._size = 0

    def add(self, frames: int, packets: Sequence[Any]) -> None:
        """Adds the packets that came out when these new frames went in; over KEPT_MAX, drops all."""
        self._size += sum(one.size for one in packets)
        if self._size > KEPT_MAX:
            self._file.truncate(0)
            return
        self._file.write(_STRETCH.pack(frames, len(packets)))
        for one in packets:
            self._file.write(_PACKET.pack(one.size, one.pts, one.is_keyframe))
            self._file.write(bytes(one))

    def read(self) -> bytes | None:
        """Returns all that was added; None once that is over KEPT_MAX."""
        if self._size > KEPT_MAX:
            return None
        self._file.flush()
        return self._path.read_bytes()

    def close(self) -> None:
        """Closes the file. Nothing is added later."""
        self._file.close()


def unpacked(kept: bytes) -> Iterator[tuple[int, list[Any]]]:
    """Yields each stretch of what `read` returned: the number of frames, and the packets."""
    at = 0
    while at < len(kept):
        frames, count = _STRETCH.unpack_from(kept, at)
        at += _STRETCH.size
        packets = []
        for _ in range(count):
            size, pts, key = _PACKET.unpack_from(kept, at)
            at += _PACKET.size
            packets.append(_packet(kept[at : at + size], pts, bool(key)))
            at += size
        yield frames, packets


def _packet(data: bytes, pts: int, key: bool) -> Any:
    packet = av.Packet(data)
    packet.pts = packet.dts = pts
    packet.time_base, packet.is_keyframe = Fraction(1, FPS), key
    return packet
