"""Whether a sound file is all there, by what it says of itself; FFmpeg plays half a file without a word.

    wav   the length of its data chunk                mp3   the bytes that its Xing or Info header counts
    ogg   its last page, which must be marked so      m4a   the lengths of its boxes
    flac  says how many samples it has: decoding counts them, see `voice`

Headers are read, nothing is decoded. A file that does not say how long it is cannot be told from a whole one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["held_to_its_length", "missing"]

UNKNOWN_LENGTH: Final = 0x7FFF_0000
"""From here on: written by a program that could not go back to fill it in, and knows 31 or 32 bits."""

PAGE: Final = 1 << 16
"""More than an Ogg page can have."""

FRAME: Final = 2048
"""More than the first frame of an MP3 has before and in its header."""

CHUNKS: Final = 1000


def missing(path: Path) -> str | None:
    """What is not there, in words; None where nothing is known to be missing."""
    with path.open("rb") as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(12)
        if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
            return _of_wave(file, size)
        if head[:4] == b"OggS":
            return _of_ogg(file, size)
        if head[4:8] == b"ftyp":
            return _of_boxes(file, size)
        return _of_mp3(file, size)


def held_to_its_length(path: Path) -> bool:
    """Whether what is decoded must be as long as FFmpeg says. It guesses the length of an MP3 without a
    header, often wrongly; and where the header counts bytes, these are there, or `missing`, however many
    frames it tells of."""
    with path.open("rb") as file:
        start = _first_frame(file)
        head = _at(file, start, FRAME)
    if not _is_mp3(head) or b"VBRI" in head:
        return True
    return (b"Xing" in head or b"Info" in head) and _bytes_of_mp3(head) is None


def _of_wave(file: BinaryIO, size: int) -> str | None:
    place = 12
    for _ in range(CHUNKS):
        chunk = _at(file, place, 8)
        said = int.from_bytes(chunk[4:], "little")
        if len(chunk) < 8 or chunk[:4] == b"data":
            break
        place += 8 + said + said % 2
    there = size - place - 8
    if len(chunk) == 8 and there < said < UNKNOWN_LENGTH:
        return f"it holds {there} of {said} bytes of sound"
    return None


def _of_ogg(file: BinaryIO, size: int) -> str | None:
    """The mark is a bit of the page's header; after the header stand the lengths of its parts."""
    tail = _at(file, max(0, size - PAGE), PAGE)
    place = tail.rfind(b"OggS")
    if place < 0:
        return None
    page = tail[place:]
    parts = page[27 : 27 + page[26]] if len(page) > 26 else b""
    whole = len(page) > 26 and len(parts) == page[26] and len(page) >= 27 + len(parts) + sum(parts)
    return None if whole and page[5] & 4 else "its last page is not there"


def _of_boxes(file: BinaryIO, size: int) -> str | None:
    """A length of 1 means that 64 bits follow; one of 0, as far as the file goes."""
    place = 0
    for _ in range(CHUNKS):
        box = _at(file, place, 16)
        said = int.from_bytes(box[:4], "big")
        said = int.from_bytes(box[8:], "big") if said == 1 else said
        if len(box) < 8 or said < 8:
            break
        place += said
        if place > size:  # perhaps beyond where any file can be read
            break
    return f"it holds {size} of {place} bytes" if place > size else None


def _of_mp3(file: BinaryIO, size: int) -> str | None:
    start = _first_frame(file)
    said = _bytes_of_mp3(_at(file, start, FRAME))
    return f"it holds {size - start} of {said} bytes" if said and size - start < said else None


def _bytes_of_mp3(head: bytes) -> int | None:
    """As its first frame counts them; None where it does not."""
    place = max(head.find(b"Xing"), head.find(b"Info"))
    if not _is_mp3(head) or place < 0 or len(head) < place + 16:
        return None
    flags = int.from_bytes(head[place + 4 : place + 8], "big")
    counted = place + 8 + (4 if flags & 1 else 0)
    return int.from_bytes(head[counted : counted + 4], "big") or None if flags & 2 else None


def _first_frame(file: BinaryIO) -> int:
    """Behind the ID3 tag, whose length is written seven bits a byte."""
    tag = _at(file, 0, 10)
    if len(tag) < 10 or tag[:3] != b"ID3":
        return 0
    return 10 + sum((byte & 0x7F) << (7 * (3 - place)) for place, byte in enumerate(tag[6:10]))


def _is_mp3(head: bytes) -> bool:
    return len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0


def _at(file: BinaryIO, place: int, count: int) -> bytes:
    file.seek(place)
    return file.read(count)
