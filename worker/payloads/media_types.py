"""The media type of a file, by its first bytes. Pure; no name and no header is trusted.

Container formats need a second look: a WebP and a WAV are both RIFF, an M4A and an MP4 both begin with
`ftyp`. Text is UTF-8 without control characters; what begins with a bracket is called JSON, unparsed.
"""

from __future__ import annotations

HEAD = 4096
"""Bytes of a file that `media_type_of_bytes` needs."""

_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
    b"II*\x00": "image/tiff",
    b"MM\x00*": "image/tiff",
    b"fLaC": "audio/flac",
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
    b"\x1aE\xdf\xa3": "video/webm",
    b"%PDF-": "application/pdf",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b": "application/gzip",
}
_RIFF = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_BRANDS = {
    b"M4A ": "audio/mp4", b"M4B ": "audio/mp4", b"qt  ": "video/quicktime", b"avif": "image/avif",
    b"avis": "image/avif", b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heif",
}  # fmt: skip
_TEXT = [("{", "application/json"), ("[", "application/json"), ("<!doctype html", "text/html"),
         ("<html", "text/html"), ("<svg", "image/svg+xml")]  # fmt: skip

_ENDINGS = {
    "image/jpeg": ".jpg", "image/tiff": ".tiff", "image/svg+xml": ".svg", "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a", "video/quicktime": ".mov", "video/x-msvideo": ".avi", "text/plain": ".txt",
    "application/gzip": ".gz",
}  # fmt: skip


def media_type_of_bytes(head: bytes) -> str | None:
    """The media type of a file that begins with `head`; None if it is unknown."""
    for beginning, media_type in _BEGINNINGS.items():
        if head.startswith(beginning):
            return media_type
    if head.startswith((b"RIFF", b"RF64")):
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video/mp4")
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return _mpeg(head)
    return _text(head)


def extension_of(media_type: str | None) -> str:
    """The usual extension of a file of this type; libraries go by it."""
    if media_type is None:
        return ""
    return _ENDINGS.get(media_type, "." + media_type.partition("/")[2])


def matches(media_type: str | None, wanted: tuple[str, ...]) -> bool:
    """Whether a type is one of those wanted, such as `image/*`; an unknown one matches `*/*` alone."""
    if media_type is None:
        return not wanted or "*/*" in wanted
    family = media_type.partition("/")[0] + "/*"
    return not wanted or bool({media_type, family, "*/*"}.intersection(wanted))


def _mpeg(head: bytes) -> str | None:
    """By the four bytes of a frame header: layer 3 is MP3, no layer is AAC; values that no encoder writes are
    neither."""
    version, layer, rate = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 2 & 3
    if layer == 0 and version >= 2:
        return "audio/aac"
    return "audio/mpeg" if layer and version != 1 and rate != 3 and head[2] >> 4 != 15 else None


def _text(head: bytes) -> str | None:
    try:
        text = head[:HEAD].decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # not merely cut in the middle of a character
            return None
        text = head[: error.start].decode()
    if not text.strip("\ufeff \t\r\n\f") or any(char < " " and char not in "\t\r\n\f" for char in text):
        return None
    begins = text.lstrip("\ufeff \t\r\n\f").lower()
    return next((media_type for start, media_type in _TEXT if begins.startswith(start)), "text/plain")
