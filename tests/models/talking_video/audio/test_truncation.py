"""What a sound file says of itself, read byte by byte: no file makes it fail, whatever stands in it."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from media_files import FORMATS, write_sound

from stoker.models.talking_video.audio.truncation import has_reliable_length, missing


@functools.cache
def whole(kind: str) -> bytes:
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, (1, 24_000)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        return write_sound(Path(folder) / f"a.{kind}", noise, 48_000).read_bytes()


def checked(folder: Path, data: bytes) -> tuple[str | None, bool]:
    path = folder / "sound"
    path.write_bytes(data)
    return missing(path), has_reliable_length(path)


@pytest.mark.parametrize("kind", FORMATS)
def test_of_a_whole_file_nothing_is_missing(tmp_path: Path, kind: str) -> None:
    """The length of an MP3 is in bytes, not in time, where its header counts them."""
    assert checked(tmp_path, whole(kind)) == (None, kind != "mp3")


CHECKED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@CHECKED
@given(kind=st.sampled_from([kind for kind in FORMATS if kind != "flac"]), share=st.floats(0.01, 0.999))
def test_of_a_part_something_is(tmp_path: Path, kind: str, share: float) -> None:
    """Once its head is there: with less, it is no such file. FLAC is found out by decoding."""
    data = whole(kind)
    part = data[: int(len(data) * share)]
    if len(part) > 200:
        assert checked(tmp_path, part)[0] is not None


@CHECKED
@given(
    head=st.sampled_from(
        [
            b"RIFF\0\0\0\0WAVE",
            b"OggS",
            b"\0\0\0\x10ftyp",
            b"\xff\xfb\x90\0",
            b"ID3\x04\0\0\0\0\0\x05",
            b"ID3",
            b"",
        ]
    ),
    rest=st.binary(max_size=300),
)
def test_any_bytes_are_read_to_an_answer(tmp_path: Path, head: bytes, rest: bytes) -> None:
    checked(tmp_path, head + rest)


def test_the_length_of_an_mp3_without_a_header_is_unknown(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, (1, 24_000)).astype(np.float32)
    for tag in ("0", "3"):
        path = write_sound(tmp_path / "bare.mp3", noise, 48_000, write_xing="0", id3v2_version=tag)
        assert checked(tmp_path, path.read_bytes()) == (None, False)
        assert checked(tmp_path, path.read_bytes()[:1000]) == (None, False)


def test_boxes_and_chunks_of_no_length_end_the_walk(tmp_path: Path) -> None:
    """A file may claim a million of them; of length 0 one would never be left behind."""
    assert checked(tmp_path, b"\0\0\0\x10ftypM4A \0\0\0\0" + b"\0\0\0\0mdat" + bytes(100))[0] is None
    assert checked(tmp_path, b"\0\0\0\x10ftypM4A \0\0\0\0" + b"\0\0\0\x08free" * 5000)[0] is None
    assert checked(tmp_path, b"RIFF\0\0\0\0WAVE" + b"JUNK\0\0\0\0" * 5000)[0] is None


def test_a_box_of_sixty_four_bits(tmp_path: Path) -> None:
    large = b"\0\0\0\x01mdat" + (40).to_bytes(8, "big")
    assert checked(tmp_path, b"\0\0\0\x10ftypM4A \0\0\0\0" + large + bytes(24))[0] is None
    assert (
        checked(tmp_path, b"\0\0\0\x10ftypM4A \0\0\0\0" + large + bytes(23))[0] == "it holds 55 of 56 bytes"
    )


@pytest.mark.parametrize("length", [2**63 - 9, 2**63, 2**64 - 1])
def test_a_box_that_ends_where_no_file_does(tmp_path: Path, length: int) -> None:
    large = b"\0\0\0\x01mdat" + length.to_bytes(8, "big")
    gone, _ = checked(tmp_path, b"\0\0\0\x10ftypM4A \0\0\0\0" + large + bytes(24))
    assert gone == f"it holds 56 of {length + 16} bytes"
