"""Signs that an audio file was truncated; FFmpeg decodes half a file without an error.

    wav, aiff   the length of the chunk of its samples    mp3   the bytes that its Xing or Info header counts
    ogg         its last page, which must be whole        m4a   the lengths of its boxes
    webm, mkv   the length of its segment
    flac        declares its number of samples: decoding counts them, see `normalization`

Only headers are read; nothing is decoded. A file that declares no length cannot be checked. Writers miscount,
so a sign alone does not make a file one that was cut off: decoding must end early, too, or meet damage. Only
where the missing bytes can be nothing but sound is a sign certain.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

UNKNOWN_LENGTH: Final = 0x7FFF_0000
"""This length or a larger one was written by a program that could not go back to fill in the true length."""

PAGE: Final = 1 << 16
"""Bytes: more than the largest page of Ogg."""

FRAME: Final = 2048
"""Bytes: more than the first frame of an MP3 has before the end of its header."""

CHUNKS: Final = 1000

EBML: Final = b"\x1aE\xdf\xa3"
SEGMENT: Final = b"\x18S\x80g"
"""The names of the two elements of a Matroska or WebM file."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign that a file was cut off. `text` says what is missing; `certain` is false where it may be
    something else than sound."""

    text: str
    certain: bool


def sign(path: Path) -> Sign | None:
    """Returns the sign that the file was cut off; None if the file seems complete."""
    with path.open("rb") as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(12)
        if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
            return _of_chunks(file, size, b"data", "little")
        if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
            return _of_chunks(file, size, b"SSND", "big")
        if head[:4] == b"OggS":
            return _of_ogg(file, size)
        if head[4:8] == b"ftyp":
            return _of_boxes(file, size)
        if head[:4] == EBML:
            return _of_segment(file, size)
        return _of_mp3(file, size)


def has_reliable_length(path: Path) -> bool:
    """Returns whether decoding must give as much sound as FFmpeg reports. That is not so for AAC and an MP3
    without a header, whose length FFmpeg guesses, often wrongly; nor if the header counts bytes, which `sign`
    has checked; nor for Matroska, which tells the length of its longest track."""
    with path.open("rb") as file:
        if _at(file, 0, 4) == EBML:
            return False
        start = _first_frame(file)
        head = _at(file, start, FRAME)
    if not _is_mp3(head) or b"VBRI" in head:
        return True
    return (b"Xing" in head or b"Info" in head) and _bytes_of_mp3(head) is None


def _of_chunks(file: BinaryIO, size: int, name: bytes, order: Literal["little", "big"]) -> Sign | None:
    """Compares the declared length of the sound. Some writers count the header as sound; that much may be
    missing."""
    position = 12
    for _ in range(CHUNKS):
        chunk = _at(file, position, 8)
        declared = int.from_bytes(chunk[4:], order)
        if len(chunk) < 8 or chunk[:4] == name:
            break
        position += 8 + declared + declared % 2
    header = position + 8
    present = size - header
    if len(chunk) == 8 and present + header < declared < UNKNOWN_LENGTH:
        return Sign(f"it holds {present} of {declared} bytes of sound", certain=True)
    return None


def _of_ogg(file: BinaryIO, size: int) -> Sign | None:
    """Checks the last page, whose header is followed by the lengths of its segments. Its end flag says
    nothing: recorders on phones leave the flag out."""
    tail = _at(file, max(0, size - PAGE), PAGE)
    position = tail.rfind(b"OggS")
    if position < 0:
        return None
    page = tail[position:]
    parts = page[27 : 27 + page[26]] if len(page) > 26 else b""
    whole = len(page) > 26 and len(parts) == page[26] and len(page) >= 27 + len(parts) + sum(parts)
    return None if whole else Sign("its last page is not whole", certain=True)


def _of_segment(file: BinaryIO, size: int) -> Sign | None:
    """Checks the length of the segment. A segment whose length is unknown was streamed, by a browser's
    recorder or through a pipe."""
    position = 4
    declared, width = _number(_at(file, position, 8))
    position += width + (declared or 0)
    if _at(file, position, 4) != SEGMENT:
        return None
    declared, width = _number(_at(file, position + 4, 8))
    end = position + 4 + width + (declared or 0)
    return Sign(f"it holds {size} of {end} bytes", certain=False) if end > size else None


def _number(data: bytes) -> tuple[int | None, int]:
    """Returns a length in Matroska, and of how many bytes it is: the zeros before its first bit tell. None if
    the length is unknown, which is written as ones."""
    if not data or not data[0]:
        return None, 1
    width = 9 - data[0].bit_length()
    value = int.from_bytes(data[:width], "big") & ((1 << 7 * width) - 1)
    return (None if value == (1 << 7 * width) - 1 else value), width


def _of_boxes(file: BinaryIO, size: int) -> Sign | None:
    """Checks the lengths of the boxes: 1 means that 64 bits follow; 0 means up to the end of the file.
    Without its index no sound can be decoded; other boxes may be cut behind the last sound."""
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
    if position <= size:
        return None
    return Sign(f"it holds {size} of {position} bytes", certain=box[4:8] in (b"moov", b"moof"))


def _of_mp3(file: BinaryIO, size: int) -> Sign | None:
    """Compares the declared number of bytes. The sign is certain if nothing but the bytes is counted."""
    start = _first_frame(file)
    head = _at(file, start, FRAME)
    declared, present = _bytes_of_mp3(head), size - start
    if not declared or present >= declared:
        return None
    return Sign(f"it holds {present} of {declared} bytes", certain=not _counts_frames(head))


def _counts_frames(head: bytes) -> bool:
    position = max(head.find(b"Xing"), head.find(b"Info"))
    return bool(head[position + 7] & 1)


def _bytes_of_mp3(head: bytes) -> int | None:
    """Returns the number of bytes that the first frame declares; None if the frame declares none."""
    position = max(head.find(b"Xing"), head.find(b"Info"))
    if not _is_mp3(head) or position < 0 or len(head) < position + 16:
        return None
    flags = int.from_bytes(head[position + 4 : position + 8], "big")
    counted = position + 8 + (4 if flags & 1 else 0)
    return int.from_bytes(head[counted : counted + 4], "big") or None if flags & 2 else None


def _first_frame(file: BinaryIO) -> int:
    """Returns the position after the ID3 tag, whose length has seven bits a byte."""
    tag = _at(file, 0, 10)
    if len(tag) < 10 or tag[:3] != b"ID3":
        return 0
    return 10 + sum((byte & 0x7F) << (7 * (3 - position)) for position, byte in enumerate(tag[6:10]))


def _is_mp3(head: bytes) -> bool:
    return len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0


def _at(file: BinaryIO, position: int, count: int) -> bytes:
    file.seek(position)
    return file.read(count)
