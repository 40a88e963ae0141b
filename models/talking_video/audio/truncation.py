"""Checks whether an audio file was truncated; FFmpeg decodes half a file without an error.

    wav   the length of its data chunk                mp3   the bytes that its Xing or Info header counts
    ogg   its last page, which must have the end flag m4a   the lengths of its boxes
    flac  declares its number of samples: decoding counts them, see `normalization`

Only headers are read; nothing is decoded. A file that declares no length cannot be checked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

UNKNOWN_LENGTH: Final = 0x7FFF_0000
"""This length or a larger one was written by a program that could not go back to fill in the true length."""

PAGE: Final = 1 << 16
"""Bytes: more than the largest page of Ogg."""

FRAME: Final = 2048
"""Bytes: more than the first frame of an MP3 has before the end of its header."""

CHUNKS: Final = 1000


def missing(path: Path) -> str | None:
    """A message that says what is missing; None if the file seems complete."""
    with path.open("rb") as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(12)
        if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
            return _of_wave(file, size)
        if head[:4] == b"OggS":
            return _of_ogg(file, size)
        if head[4:8] == b"ftyp":
            return _of_boxes(file, size)
        return _of_mp3(file, size)


def has_reliable_length(path: Path) -> bool:
    """Whether decoding must give as much sound as FFmpeg reports. It need not for an MP3 without a header,
    whose length FFmpeg guesses, often wrongly; nor if the header counts bytes, which `missing` has
    checked."""
    with path.open("rb") as file:
        start = _first_frame(file)
        head = _at(file, start, FRAME)
    if not _is_mp3(head) or b"VBRI" in head:
        return True
    return (b"Xing" in head or b"Info" in head) and _bytes_of_mp3(head) is None


def _of_wave(file: BinaryIO, size: int) -> str | None:
    position = 12
    for _ in range(CHUNKS):
        chunk = _at(file, position, 8)
        declared = int.from_bytes(chunk[4:], "little")
        if len(chunk) < 8 or chunk[:4] == b"data":
            break
        position += 8 + declared + declared % 2
    present = size - position - 8
    if len(chunk) == 8 and present < declared < UNKNOWN_LENGTH:
        return f"it holds {present} of {declared} bytes of sound"
    return None


def _of_ogg(file: BinaryIO, size: int) -> str | None:
    """The end flag is a bit of the page's header; the lengths of the page's segments follow the header."""
    tail = _at(file, max(0, size - PAGE), PAGE)
    position = tail.rfind(b"OggS")
    if position < 0:
        return None
    page = tail[position:]
    parts = page[27 : 27 + page[26]] if len(page) > 26 else b""
    whole = len(page) > 26 and len(parts) == page[26] and len(page) >= 27 + len(parts) + sum(parts)
    return None if whole and page[5] & 4 else "its last page is not there"


def _of_boxes(file: BinaryIO, size: int) -> str | None:
    """A length of 1 means that 64 bits follow; 0 means up to the end of the file."""
    position = 0
    for _ in range(CHUNKS):
        box = _at(file, position, 16)
        declared = int.from_bytes(box[:4], "big")
        declared = int.from_bytes(box[8:], "big") if declared == 1 else declared
        if len(box) < 8 or declared < 8:
            break
        position += declared
        if position > size:  # it may be too large to seek to
            break
    return f"it holds {size} of {position} bytes" if position > size else None


def _of_mp3(file: BinaryIO, size: int) -> str | None:
    start = _first_frame(file)
    declared = _bytes_of_mp3(_at(file, start, FRAME))
    return f"it holds {size - start} of {declared} bytes" if declared and size - start < declared else None


def _bytes_of_mp3(head: bytes) -> int | None:
    """The number of bytes that its first frame declares; None if it declares none."""
    position = max(head.find(b"Xing"), head.find(b"Info"))
    if not _is_mp3(head) or position < 0 or len(head) < position + 16:
        return None
    flags = int.from_bytes(head[position + 4 : position + 8], "big")
    counted = position + 8 + (4 if flags & 1 else 0)
    return int.from_bytes(head[counted : counted + 4], "big") or None if flags & 2 else None


def _first_frame(file: BinaryIO) -> int:
    """The position after the ID3 tag, whose length has seven bits a byte."""
    tag = _at(file, 0, 10)
    if len(tag) < 10 or tag[:3] != b"ID3":
        return 0
    return 10 + sum((byte & 0x7F) << (7 * (3 - position)) for position, byte in enumerate(tag[6:10]))


def _is_mp3(head: bytes) -> bool:
    return len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0


def _at(file: BinaryIO, position: int, count: int) -> bytes:
    file.seek(position)
    return file.read(count)
