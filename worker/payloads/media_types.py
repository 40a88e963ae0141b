"""The media type of a file, by its first bytes. Pure; no name and no header is trusted.

Container formats need a second look: a WebP and a WAV are both RIFF, an M4A, an MP4 and a HEIC all begin with
`ftyp`, a WebM is a Matroska of another name. Text is UTF-8 without control characters; what begins with a
bracket is called JSON, unparsed.
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
    b"caff\0\x01": "audio/x-caf",
    b"#!AMR": "audio/amr",
    b".snd\0": "audio/basic",
    b"MThd\0\0\0\x06": "audio/midi",
    b"riff\x2e\x91\xcf\x11": "audio/x-w64",
    b"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "video/x-ms-asf",
    b"\xff\x0a": "image/jxl",
    b"\0\0\0\x0cJXL \r\n\x87\n": "image/jxl",
    b"\0\0\0\x0cjP  \r\n\x87\n": "image/jp2",
    b"8BPS\0\x01": "image/vnd.adobe.photoshop",
    b"%PDF-": "application/pdf",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b": "application/gzip",
}
_RIFF = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_FORM = {b"AIFF": "audio/aiff", b"AIFC": "audio/aiff"}
_BRANDS = {
    b"M4A ": "audio/mp4", b"M4B ": "audio/mp4", b"qt  ": "video/quicktime", b"avif": "image/avif",
    b"avis": "image/avif", b"heic": "image/heic", b"heix": "image/heic", b"heim": "image/heic",
    b"heis": "image/heic", b"hevc": "image/heic", b"hevx": "image/heic",
}  # fmt: skip
_ANY_IMAGE = (b"mif1", b"msf1")
"""Brands of an image whose coding a later, compatible brand tells."""

_TEXT = [("{", "application/json"), ("[", "application/json"), ("<!doctype html", "text/html"),
         ("<html", "text/html"), ("<svg", "image/svg+xml")]  # fmt: skip

_ENDINGS = {
    "image/jpeg": ".jpg", "image/tiff": ".tiff", "image/svg+xml": ".svg", "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a", "video/quicktime": ".mov", "video/x-msvideo": ".avi", "text/plain": ".txt",
    "application/gzip": ".gz", "video/x-matroska": ".mkv", "audio/x-caf": ".caf", "audio/basic": ".au",
    "audio/midi": ".mid", "audio/x-w64": ".w64", "video/x-ms-asf": ".asf",
    "image/vnd.adobe.photoshop": ".psd", "video/3gpp": ".3gp",
}  # fmt: skip


def media_type_of_bytes(head: bytes) -> str | None:
    """Returns the media type of a file that begins with `head`; None if that type is unknown."""
    for beginning, media_type in _BEGINNINGS.items():
        if head.startswith(beginning):
            return media_type
    if head.startswith((b"RIFF", b"RF64")):
        return _RIFF.get(head[8:12])
    if head.startswith(b"FORM") and head[8:12] in _FORM:
        return _FORM[head[8:12]]
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "video/x-matroska" if b"matroska" in head[:64] else "video/webm"
    if head[4:8] == b"ftyp":
        return _of_brands(head)
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return _mpeg(head)
    return _text(head)


def extension_of(media_type: str | None) -> str:
    """Returns the usual extension of a file of this type; libraries choose a decoder by the extension."""
    if media_type is None:
        return ""
    return _ENDINGS.get(media_type, "." + media_type.partition("/")[2])


def matches(media_type: str | None, wanted: tuple[str, ...]) -> bool:
    """Returns whether a type is wanted, such as `image/*`; an unknown type matches `*/*` alone."""
    if media_type is None:
        return not wanted or "*/*" in wanted
    family = media_type.partition("/")[0] + "/*"
    return not wanted or bool({media_type, family, "*/*"}.intersection(wanted))


def _of_brands(head: bytes) -> str:
    """Returns the media type by the first brand; that of an image of any coding by its compatible brands."""
    first = head[8:12]
    if first.startswith(b"3g"):
        return "video/3gpp"
    if first not in _ANY_IMAGE:
        return _BRANDS.get(first, "video/mp4")
    more = head[16 : min(len(head), int.from_bytes(head[:4], "big"))]
    known = (_BRANDS.get(more[at : at + 4]) for at in range(0, len(more), 4))
    return next(filter(None, known), "image/heif")


def _mpeg(head: bytes) -> str | None:
    """Returns the media type by the four bytes of a frame header: layer 3 is MP3, no layer is AAC; None for
    values that no encoder writes.
    """
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
