"""Repairs of what keeps Pillow from reading an image that other programs show. Pure.

    png    ancillary chunks that are damaged or too large, and text that nobody reads, are left out
    webp   a length that counts its own header is put right
    jpeg   the end marker is added, see `endings`

Nothing is decoded but a profile and the text about a turn, and these only as far as `INFLATED`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

PNG: Final = b"\x89PNG\r\n\x1a\n"

INFLATED: Final = 1 << 20
"""Bytes of a compressed chunk. Pillow refuses a file with one that is larger."""

ANCILLARY: Final = {b"tRNS": 1, b"gAMA": 4, b"eXIf": 1, b"acTL": 8, b"fcTL": 26, b"fdAT": 4}
"""Chunks that change the picture, or show that it moves, with their least bytes."""

TEXTS: Final = (b"Raw profile type exif", b"XML:com.adobe.xmp")
"""The keywords of texts that may say how the image is turned."""

END: Final = b"\xff\xd9"
FILLINGS: Final = (b"", b"\xfe" * 512, b"\xaa" * 512)
"""Without a marker of JPEG. As codes the first are the shortest, and the second the longest, whose values
are the largest."""


def repaired(data: bytes) -> bytes:
    if data.startswith(PNG):
        return PNG + b"".join(_kept(data))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _with_length(data)
    return data


def endings(data: bytes) -> list[bytes]:
    """Returns a JPEG that lacks its end marker, with several endings; none if the data is not a JPEG.

    Where only the marker is missing, all are the same picture: what stands behind its last code is skipped.
    Where a part of the picture is, libjpeg decodes each filling in its place. A progressive file that ends
    between two of its scans is the picture with fewer details.
    """
    if not data.startswith(b"\xff\xd8\xff"):
        return []
    body = data[:-1] if data.endswith(END[:1]) else data
    return [body + filling + END for filling in FILLINGS]


def _with_length(data: bytes) -> bytes:
    present = len(data) - 8
    if int.from_bytes(data[4:8], "little") <= present:
        return data
    return data[:4] + present.to_bytes(4, "little") + data[8:]


def _kept(data: bytes) -> Iterator[bytes]:
    """Yields the chunks of a PNG that are of use; from the first chunk that is not whole on, all that
    follows."""
    position, seen = len(PNG), set[bytes]()
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position : position + 4], "big")
        if end > len(data):
            break
        if _is_of_use(data[position:end], seen):
            yield data[position:end]
        position = end
    yield data[position:]


def _is_of_use(chunk: bytes, seen: set[bytes]) -> bool:
    """Returns whether a chunk is of use. `seen`: the names and keywords of earlier chunks that may occur only
    once."""
    name, body = chunk[4:8], chunk[8:-4]
    if not name[0] & 0x20:  # a critical chunk
        return True
    if zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
        return False
    if name in ANCILLARY:
        return len(body) >= ANCILLARY[name]
    keyword, _, rest = body.partition(b"\0")
    once = name if name == b"iCCP" else keyword
    if once in seen or once not in (b"iCCP", *TEXTS) or not _is_inflatable(name, rest):
        return False
    seen.add(once)
    return True


def _is_inflatable(name: bytes, rest: bytes) -> bool:
    """Returns whether a chunk's text can be decompressed. `rest`: the bytes behind the keyword. An
    international text says by a flag that it is compressed, and has a language and a translated keyword
    before it."""
    if name == b"tEXt":
        return True
    if name == b"iTXt":
        if rest[:1] != b"\1":
            return rest[:1] == b"\0"
        parts = rest[2:].split(b"\0", 2)
        rest = rest[1:2] + (parts[2] if len(parts) == 3 else b"")
    if name not in (b"iCCP", b"zTXt", b"iTXt") or rest[:1] != b"\0":
        return False
    inflater = zlib.decompressobj()
    try:
        return len(inflater.decompress(rest[1:], INFLATED + 1)) <= INFLATED and inflater.eof
    except zlib.error:
        return False
