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
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "image/heic", ".heic"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "image/heic", ".heic"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1miafavif", "image/avif", ".avif"),
        (b"\0\0\0\x14ftypmif1\0\0\0\0mif1heic", "image/heif", ".heif"),  # the last is outside the box
        (b"\0\0\0\x18ftypmsf1\0\0\0\0msf1hevc", "image/heic", ".heic"),
        (b"\0\0\0\x14ftyp3gp4\0", "video/3gpp", ".3gp"),
        (b"\x1aE\xdf\xa3\x9f", "video/webm", ".webm"),
        (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\x82\x84webm", "video/webm", ".webm"),
        (b"\x1aE\xdf\xa3\xa3B\x86\x81\x01B\x82\x88matroska", "video/x-matroska", ".mkv"),
        (b"FORM\0\0\0\x2eAIFFCOMM", "audio/aiff", ".aiff"),
        (b"FORM\0\0\0\x2eAIFCFVER", "audio/aiff", ".aiff"),
        (b"FORMULA ONE", "text/plain", ".txt"),
        (b"caff\0\x01\0\0desc", "audio/x-caf", ".caf"),
        (b"caffeine", "text/plain", ".txt"),
        (b"#!AMR\n<", "audio/amr", ".amr"),
        (b".snd\0\0\0\x18", "audio/basic", ".au"),
        (b"MThd\0\0\0\x06\0\x01", "audio/midi", ".mid"),
        (b"riff\x2e\x91\xcf\x11\xa5\xd6", "audio/x-w64", ".w64"),
        (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9", "video/x-ms-asf", ".asf"),
        (b"\xff\x0a\xfa\x1f", "image/jxl", ".jxl"),
        (b"\0\0\0\x0cJXL \r\n\x87\n\0", "image/jxl", ".jxl"),
        (b"\0\0\0\x0cjP  \r\n\x87\n\0", "image/jp2", ".jp2"),
        (b"8BPS\0\x01\0", "image/vnd.adobe.photoshop", ".psd"),
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
