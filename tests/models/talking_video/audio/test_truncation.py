"""What a sound file says of itself, read byte by byte: no file makes it fail, whatever stands in it."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.models.talking_video.audio.truncation import Sign, has_reliable_length, sign
from tests.media_files import FORMATS, write_sound


@functools.cache
def whole(kind: str) -> bytes:
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, (1, 24_000)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        return write_sound(Path(folder) / f"a.{kind}", noise, 48_000).read_bytes()


def checked(folder: Path, data: bytes) -> tuple[str | None, bool]:
    path = folder / "sound"
    path.write_bytes(data)
    found = sign(path)
    return found and found.text, has_reliable_length(path)


@pytest.mark.parametrize("kind", FORMATS)
def test_of_a_whole_file_nothing_is_missing(tmp_path: Path, kind: str) -> None:
    """The length of an MP3 is in bytes, not in time, where its header counts them; that of AAC is guessed,
    and that of Matroska is of all tracks."""
    assert checked(tmp_path, whole(kind)) == (None, kind not in ("mp3", "aac", "webm", "mkv"))


CHECKED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@CHECKED
@given(
    kind=st.sampled_from([kind for kind in FORMATS if kind not in ("flac", "aac")]),
    share=st.floats(0.01, 0.999),
)
def test_of_a_part_something_is(tmp_path: Path, kind: str, share: float) -> None:
    """Once its head is there: with less, it is no such file. FLAC is found out by decoding, AAC declares no
    length, and an Ogg may end with any page. As much as the header may be missing of WAV and AIFF."""
    data = whole(kind)
    part, lost = data[: int(len(data) * share)], data[int(len(data) * share) :]
    miscounted = kind in ("wav", "aiff") and len(lost) <= 80
    if len(part) > 200 and not miscounted and not lost.startswith(b"OggS"):
        assert checked(tmp_path, part)[0] is not None


@CHECKED
@given(
    head=st.sampled_from(
        [
            b"RIFF\0\0\0\0WAVE",
            b"OggS",
            b"FORM\0\0\0\0AIFF",
            b"\x1aE\xdf\xa3",
            b"\x1aE\xdf\xa3\x80\x18S\x80g",
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


@pytest.mark.parametrize(
    ("kind", "cut", "certain"),
    [("wav", 100, True), ("aiff", 100, True), ("ogg", 1, True), ("m4a", 1, True), ("webm", 1, False)],
)
def test_a_sign_is_certain_where_only_sound_can_be_missing(
    tmp_path: Path, kind: str, cut: int, certain: bool
) -> None:
    """Or the index, without which no sound is found."""
    (tmp_path / "part").write_bytes(whole(kind)[:-cut])
    found = sign(tmp_path / "part")
    assert found is not None
    assert found.certain is certain


@pytest.mark.parametrize("flags", [1, 2, 3])
def test_the_bytes_of_an_mp3_are_certain_if_its_frames_are_not_counted(tmp_path: Path, flags: int) -> None:
    counted = (b"\0\0\0\x09" if flags & 1 else b"") + (b"\0\0\x10\0" if flags & 2 else b"")
    data = b"\xff\xfb\x90\0" + b"Xing\0\0\0" + bytes([flags]) + counted + bytes(1000)
    (tmp_path / "part").write_bytes(data)
    expected = Sign(f"it holds {len(data)} of 4096 bytes", certain=flags == 2) if flags & 2 else None
    assert sign(tmp_path / "part") == expected


@pytest.mark.parametrize("ones", [b"\xff", b"\x01" + b"\xff" * 7])
def test_a_segment_of_unknown_length_was_streamed(tmp_path: Path, ones: bytes) -> None:
    assert checked(tmp_path, b"\x1aE\xdf\xa3\x82ab" + b"\x18S\x80g" + ones + bytes(50)) == (None, False)
    gone, _ = checked(tmp_path, b"\x1aE\xdf\xa3\x82ab" + b"\x18S\x80g" + b"\x40\x34" + bytes(50))
    assert gone == "it holds 63 of 65 bytes"


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
