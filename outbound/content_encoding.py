"""Unpacks bodies that a server has compressed although nobody requested it. Pure.

    gzip, x-gzip, deflate, br      unpacked, the last one first
    zstd, compress, dcb, dcz, …    refused: a compression that is not unpacked here
    any other label, or none       changes nothing: stores keep that of an upload (aws-chunked, utf-8, base64)

What comes out of each step is bounded, so that a small body that unpacks to a huge one takes little memory,
and its reader may stop at any piece.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

PIECE_BYTES = 1 << 20
_PACKINGS_MOST = 3
_NOT_UNPACKED = {"bzip2", "compress", "dcb", "dcz", "exi", "lz4", "lzma", "pack200-gzip", "snappy", "x-bzip2",
                 "x-compress", "xz", "zstd"}  # fmt: skip
_GZIP_BEGINS = b"\x1f\x8b"


class NotUnpacked(Exception):
    """The body is of no use. The text continues a sentence that begins with its URL."""


class Unpacking(Protocol):
    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yields what the next bytes of the body unpack to. Raises NotUnpacked."""

    def end(self) -> None:
        """Raises NotUnpacked if the body ended too early."""


def unpacking_of(content_encoding: str) -> Unpacking | None:
    """Returns what unpacks a body with this header, or None if the body is not compressed. Raises
    NotUnpacked."""
    labels = [label.strip().lower() for label in content_encoding.split(",")]
    if unknown := next((label for label in labels if label in _NOT_UNPACKED), None):
        raise NotUnpacked(f"sent a body compressed with {unknown}, which was not requested")
    known = [_KNOWN[label] for label in reversed(labels) if label in _KNOWN]
    if len(known) > _PACKINGS_MOST:
        raise NotUnpacked(f"sent a body that is compressed {len(known)} times")
    if not known:
        return None
    whole: Unpacking = known[0]()
    for one in known[1:]:
        whole = _Chain(whole, one())
    return whole


class _Gzip:
    """A gzip stream of one or more members. Ignores what follows the last member, such as padding."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._begun = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        self._begun = self._begun or bool(data)
        while data:
            if self._member.eof:
                if not _GZIP_BEGINS.startswith(data[: len(_GZIP_BEGINS)]):
                    return
                self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield from _inflated(self._member, data, "gzip")
            data = self._member.unused_data

    def end(self) -> None:
        if self._begun and not self._member.eof:
            raise NotUnpacked("broke off: its gzip data has no end")


class _Deflate:
    """A deflate stream with the header of zlib, as the standard says, or without, as some servers send it."""

    def __init__(self) -> None:
        self._head = b""
        self._stream: zlib._Decompress | None = None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, bits = self._head, zlib.MAX_WBITS if _begins_zlib(self._head) else -zlib.MAX_WBITS
            self._stream = zlib.decompressobj(bits)
        if data and not self._stream.eof:
            yield from _inflated(self._stream, data, "deflate")

    def end(self) -> None:
        if self._head and (self._stream is None or not self._stream.eof):
            raise NotUnpacked("broke off: its deflate data has no end")


class _Brotli:
    def __init__(self) -> None:
        import brotli  # seldom needed

        self._error = brotli.error
        self._stream = brotli.Decompressor()
        self._begun = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        self._begun = self._begun or bool(data)
        try:
            while not self._stream.is_finished():
                piece = self._stream.process(data, output_buffer_limit=PIECE_BYTES)
                yield piece
                if not piece and self._stream.can_accept_more_data():
                    return
                data = b""
        except self._error:
            raise NotUnpacked("is labelled br, and is damaged or no brotli data") from None

    def end(self) -> None:
        if self._begun and not self._stream.is_finished():
            raise NotUnpacked("broke off: its brotli data has no end")


class _Chain:
    def __init__(self, outer: Unpacking, inner: Unpacking) -> None:
        self._outer, self._inner = outer, inner

    def pieces(self, data: bytes) -> Iterator[bytes]:
        for piece in self._outer.pieces(data):
            yield from self._inner.pieces(piece)

    def end(self) -> None:
        self._outer.end()
        self._inner.end()


_KNOWN: dict[str, type[_Gzip] | type[_Deflate] | type[_Brotli]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
}


def _inflated(stream: zlib._Decompress, data: bytes, label: str) -> Iterator[bytes]:
    """Yields the inflated pieces of `data`. Zlib may hold back output although it has taken all input: only a
    short piece is the last one."""
    try:
        while not stream.eof:
            piece = stream.decompress(data, PIECE_BYTES)
            data = stream.unconsumed_tail
            yield piece
            if not data and len(piece) < PIECE_BYTES:
                return
    except zlib.error:
        raise NotUnpacked(f"is labelled {label}, and is damaged or no {label} data") from None


def _begins_zlib(head: bytes) -> bool:
    return head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0
