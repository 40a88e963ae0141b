"""What files are called by their first bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.worker.payloads.media_types import HEAD, extension_of, matches, media_type_of_bytes


@pytest.mark.parametrize(
    ("head", "media_type", "ending"),
    [
        (b"\x89PNG\r\n\x1a\n\0", "image/png", ".png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg", ".jpg"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp", ".webp"),
        (b"GIF89a", "image/gif", ".gif"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav", ".wav"),
        (b"RF64\xff\xff\xff\xffWAVEds64", "audio/wav", ".wav"),
        (b"ID3\x04", "audio/mpeg", ".mp3"),
        (b"\xff\xfb\x90\x64", "audio/mpeg", ".mp3"),
        (b"\xff\xf1\x50\x80", "audio/aac", ".aac"),
        (b"fLaC\0", "audio/flac", ".flac"),
        (b"OggS\0", "audio/ogg", ".ogg"),
        (b"\0\0\0\x20ftypM4A \0", "audio/mp4", ".m4a"),
        (b"\0\0\0\x20ftypisom\0", "video/mp4", ".mp4"),
        (b"\0\0\0\x20ftypavif\0", "image/avif", ".avif"),
        (b"\x1aE\xdf\xa3\x9f", "video/webm", ".webm"),
        (b'\xef\xbb\xbf {"a": 1}', "application/json", ".json"),
        (b"[1]", "application/json", ".json"),
        (b"<!DOCTYPE HTML>", "text/html", ".html"),
        ("héllo".encode(), "text/plain", ".txt"),
        ("é".encode() * HEAD, "text/plain", ".txt"),
        (b"a" + "é".encode() * HEAD, "text/plain", ".txt"),  # cut in the middle of a letter
        (b"", None, ""),
        (b" \n", None, ""),
        (b"h\xffllo and so on", None, ""),
        (b"zero\0", None, ""),
        (b"RIFF\0\0\0\0else", None, ""),
        (b"\xff\xff\xff\xff", None, ""),
    ],
)
def test_the_type(head: bytes, media_type: str | None, ending: str) -> None:
    assert media_type_of_bytes(head[:HEAD]) == media_type
    assert extension_of(media_type) == ending


@pytest.mark.parametrize(
    ("media_type", "wanted", "fits"),
    [
        ("image/png", (), True),
        (None, (), True),
        (None, ("image/*",), False),
        (None, ("*/*",), True),
        ("image/png", ("image/*",), True),
        ("image/png", ("audio/*", "image/png"), True),
        ("image/png", ("image/jpeg",), False),
        ("audio/wav", ("image/*",), False),
    ],
)
def test_what_is_wanted(media_type: str | None, wanted: tuple[str, ...], fits: bool) -> None:
    assert matches(media_type, wanted) is fits


@given(st.binary(max_size=64))
def test_any_bytes_get_an_answer(head: bytes) -> None:
    found = media_type_of_bytes(head)
    assert found is None or extension_of(found).startswith(".")
