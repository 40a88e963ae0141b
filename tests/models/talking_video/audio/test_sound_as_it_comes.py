"""Sound as phones, browsers and careless writers send it, and what is told of what is refused."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.talking_video.audio import ogg, recording
from stoker.models.talking_video.audio.normalization import InvalidAudio, NormalizedAudio, normalized
from stoker.models.talking_video.video.video_file import VideoFile
from tests.media_files import Sound, clicks, lag, read_sound, tone, with_gap, write_sound

RATE = 48_000


def heard(path: Path) -> NormalizedAudio:
    folder = path.parent / f"{path.name}.scratch"
    folder.mkdir(exist_ok=True)
    return normalized(path, folder)


def refusal(path: Path) -> str:
    with pytest.raises(InvalidAudio) as refused:
        heard(path)
    return str(refused.value)


def speech(seconds: float, rate: int = RATE, channels: int = 1) -> Sound:
    return np.repeat(clicks(round(seconds * rate), rate), channels, axis=0)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# Ogg


def crc(page: bytes) -> int:
    """The checksum of a page (RFC 3533, section 6), a bit at a time."""
    found = 0
    for byte in page:
        found ^= byte << 24
        for _ in range(8):
            found = (found << 1 ^ (0x04C1_1DB7 if found & 1 << 31 else 0)) & 0xFFFF_FFFF
    return found


def pages(data: bytes) -> list[bytes]:
    starts = [found.start() for found in re.finditer(b"OggS", data)]
    return [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]


def without_end_flag(data: bytes) -> bytes:
    *before, last = pages(data)
    assert last[5] & 4
    page = last[:5] + bytes([last[5] & ~4]) + last[6:22] + bytes(4) + last[26:]
    return b"".join(before) + page[:22] + crc(page).to_bytes(4, "little") + page[26:]


def ogg_of(path: Path, coding: str, sound: Sound, rate: int = RATE) -> bytes:
    soundfile.write(path, sound.T, rate, coding, format="OGG")
    return path.read_bytes()


@pytest.mark.parametrize("coding", ["OPUS", "VORBIS"])
@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_an_ogg_whose_last_page_lacks_the_end_flag_is_heard(
    tmp_path: Path, coding: str, seconds: float
) -> None:
    whole = ogg_of(tmp_path / "whole.ogg", coding, speech(seconds))
    path = written(tmp_path / "voice.ogg", without_end_flag(whole))
    with_flag = heard(tmp_path / "whole.ogg")
    assert with_flag.seconds == pytest.approx(seconds, abs=0.01)
    without = heard(path)
    assert without.seconds == pytest.approx(seconds, abs=0.02)  # the flag cuts off what an encoder adds
    assert lag(np.asarray(without.samples.values), np.asarray(with_flag.samples.values)) == 0


@pytest.mark.parametrize("coding", ["OPUS", "VORBIS"])
@pytest.mark.parametrize("cut", [1, 500])
def test_an_ogg_that_ends_within_a_page_was_cut_off(tmp_path: Path, coding: str, cut: int) -> None:
    whole = ogg_of(tmp_path / "whole.ogg", coding, speech(2.0))
    path = written(tmp_path / "voice.ogg", without_end_flag(whole)[:-cut])
    assert refusal(path) == "its last page is not whole: it was cut off"


FORMS = {
    "the same": ((RATE, 1), (RATE, 1)),
    "channels": ((RATE, 1), (RATE, 2)),
    "fewer channels": ((RATE, 2), (RATE, 1)),
    "a lower rate": ((RATE, 1), (24_000, 1)),
    "a higher rate": ((24_000, 1), (RATE, 1)),
    "both": ((RATE, 2), (24_000, 1)),
}
"""Of the first and the second part: rate and channels."""

Writer = Callable[[Path, int, int], bytes]


def _ogg(coding: str) -> Writer:
    return lambda path, rate, channels: ogg_of(path, coding, speech(1.0, rate, channels), rate)


def _streamed(kind: str) -> Writer:
    return lambda path, rate, channels: write_sound(
        path, speech(1.0, rate, channels), rate, kind
    ).read_bytes()


WRITERS: dict[str, Writer] = {
    "opus": _ogg("OPUS"),
    "vorbis": _ogg("VORBIS"),
    "mp3": _streamed("mp3"),
    "aac": _streamed("aac"),
}


@pytest.mark.parametrize("forms", FORMS)
@pytest.mark.parametrize("kind", WRITERS)
def test_two_recordings_in_one_file_are_both_heard(tmp_path: Path, kind: str, forms: str) -> None:
    """Chained Ogg, and MP3 and AAC whose rate or channels change: the clicks of both are at their times."""
    parts = [
        WRITERS[kind](tmp_path / f"{n}", rate, channels) for n, (rate, channels) in enumerate(FORMS[forms])
    ]
    both = heard(written(tmp_path / "voice", b"".join(parts)))
    alone = [heard(tmp_path / name) for name in "01"]
    assert both.seconds == pytest.approx(alone[0].seconds + alone[1].seconds, abs=0.1)
    found = np.asarray(both.samples.values)
    first, second = (np.asarray(each.samples.values) for each in alone)
    assert abs(lag(found[:16_000], first)) <= 16
    behind = lag(found[15_000:], second) + 15_000
    assert behind == pytest.approx(16_000, abs=1700)  # as much as the packets of an MP3 are longer


@pytest.mark.parametrize("kind", ["opus", "mp3"])
def test_two_recordings_are_heard_in_the_video_too(tmp_path: Path, kind: str) -> None:
    parts = [WRITERS[kind](tmp_path / f"{n}", rate, 2 - n) for n, rate in enumerate((24_000, RATE))]
    path = written(tmp_path / "voice", b"".join(parts))
    spoken = heard(path)
    begun = VideoFile(tmp_path, path, 64, 64, spoken.frames)
    begun.add(np.zeros((spoken.frames, 64, 64, 3), np.uint8))
    made, _ = begun.finish()
    sound, rate = read_sound(made)
    assert rate == RATE
    assert abs(lag(sound[0, ::3], np.asarray(spoken.samples.values))) <= 1


def test_a_chain_that_ends_within_a_page_was_cut_off(tmp_path: Path) -> None:
    parts = [ogg_of(tmp_path / "part", "OPUS", speech(1.0, channels=n), RATE) for n in (1, 2)]
    assert "cut off" in refusal(written(tmp_path / "voice", b"".join(parts)[:-200]))


def test_links_are_bounded(tmp_path: Path) -> None:
    page = b"OggS\0\2" + bytes(21) + b"OggS\0\0" + bytes(21)
    assert len(ogg.links(page * ogg.MOST)) == ogg.MOST
    path = written(tmp_path / "voice.ogg", page * (ogg.MOST + 1))
    assert "it is a chain of more than 1000 Ogg files" in refusal(path)


@given(
    st.lists(st.sampled_from([b"OggS\0\2", b"OggS\0\0", bytes(21), b"\5", b"Og", b"\xff" * 30]), max_size=60)
)
def test_the_links_of_any_bytes_are_all_of_them(parts: list[bytes]) -> None:
    data = b"".join(parts)
    found = ogg.links(data)
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == len(data)


def test_segments_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs milliseconds, and an MP3 may have one in every frame."""
    monkeypatch.setattr(recording, "SEGMENTS", 2)
    parts = [WRITERS["mp3"](tmp_path / f"{rate}", rate, 1) for rate in (RATE, 24_000, 16_000, 44_100)]
    path = written(tmp_path / "voice.mp3", b"".join(parts))
    assert "its channels or rate change 2 times" in refusal(path)


# Containers of browsers, and others


def test_a_recording_of_a_browser_is_heard(tmp_path: Path) -> None:
    """A stream: neither its segment nor its clusters have a length, nor has the whole a duration."""
    path = write_sound(tmp_path / "voice.webm", speech(2.0), RATE, live="1")
    data = path.read_bytes()
    assert b"\x18S\x80g\x01" + b"\xff" * 7 in data
    with av.open(str(path)) as container:
        assert container.duration is None
    assert heard(path).seconds == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize("kind", ["webm", "mkv"])
def test_a_pause_that_the_time_stamps_leave_out_is_heard(tmp_path: Path, kind: str) -> None:
    whole = write_sound(tmp_path / f"whole.{kind}", speech(2.0), RATE)
    path = with_gap(whole, tmp_path / f"voice.{kind}", 1000, 500)  # milliseconds
    assert heard(path).seconds == pytest.approx(2.5, abs=0.03)
    found, before = (np.asarray(heard(each).samples.values) for each in (path, whole))
    assert abs(lag(found[18_000:], before[18_000:]) - 8_000) <= 16


def test_the_time_of_a_broadcast_is_no_silence_in_a_matroska(tmp_path: Path) -> None:
    whole = write_sound(tmp_path / "whole.mkv", speech(2.0), RATE)
    late = with_gap(whole, tmp_path / "voice.mkv", -1000, 3_600_000)
    assert heard(late).seconds == pytest.approx(2.0, abs=0.03)


def test_an_aac_behind_a_tag_is_heard(tmp_path: Path) -> None:
    data = write_sound(tmp_path / "whole.aac", speech(1.0), RATE).read_bytes()
    tag = b"ID3\3\0\0\0\0\0\x10" + bytes(16)
    files = {"before": tag + data, "behind": data + b"TAG" + bytes(125), "both": (tag + data) * 2}
    for name, changed in files.items():
        assert heard(written(tmp_path / f"{name}.mp3", changed)).seconds == pytest.approx(
            2.05 if name == "both" else 1.02, abs=0.03
        )


@pytest.mark.parametrize("cut", [1, 5, 11, 300])
def test_an_aac_that_ends_within_a_frame_is_heard_up_to_it(tmp_path: Path, cut: int) -> None:
    data = write_sound(tmp_path / "whole.aac", tone(RATE, RATE), RATE).read_bytes()
    path = written(tmp_path / "voice.aac", data[:-cut])
    assert 0.8 < heard(path).seconds < heard(tmp_path / "whole.aac").seconds


@pytest.mark.parametrize(
    ("subtype", "order"),
    [(coding, "FILE") for coding in ("PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "ULAW")]
    + [("PCM_16", "LITTLE")],
)
def test_all_codings_of_aiff_are_heard(tmp_path: Path, subtype: str, order: str) -> None:
    path = tmp_path / "voice"
    soundfile.write(path, speech(1.0).T, RATE, subtype, endian=order, format="AIFF")
    found = heard(path)
    assert found.frames == 25
    wanted = heard(write_sound(tmp_path / "wanted.wav", speech(1.0), RATE))
    assert np.corrcoef(found.samples.values, wanted.samples.values)[0, 1] > 0.99


# Lengths that are wrong


def with_chunk_length(data: bytes, name: bytes, order: str, change: Callable[[int, int], int]) -> bytes:
    """`change` gets the length and the header's."""
    at = data.index(name) + 4
    length = len(data) - at - 4
    changed = struct.pack(f"{order}I", change(length, at + 4) & 0xFFFF_FFFF)
    return data[:at] + changed + data[at + 4 :]


LENGTHS: dict[str, Callable[[int, int], int]] = {
    "counts its header": lambda length, header: length + header,
    "is that of the file's rest": lambda length, header: length + header - 8,
    "counts its own eight bytes": lambda length, _: length + 8,
    "is one more": lambda length, _: length + 1,
    "is none": lambda length, _: 0,
    "is unknown": lambda length, _: 0xFFFF_FFFF,
    "is short by a header": lambda length, header: length - header,
    "is odd": lambda length, _: length - 1,
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("coding", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT"])
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_a_wave_file_whose_length_is_wrong_is_heard(
    tmp_path: Path, length: str, coding: str, channels: int
) -> None:
    soundfile.write(tmp_path / "whole.wav", speech(1.0, 16_000, channels).T, 16_000, coding)
    data = (tmp_path / "whole.wav").read_bytes()
    path = written(tmp_path / "voice.wav", with_chunk_length(data, b"data", "<", LENGTHS[length]))
    assert heard(path).seconds == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("length", [name for name in LENGTHS if name not in ("is none", "is unknown")])
def test_an_aiff_whose_length_is_wrong_is_heard(tmp_path: Path, length: str) -> None:
    data = write_sound(tmp_path / "whole.aiff", speech(1.0, 16_000), 16_000).read_bytes()
    path = written(tmp_path / "voice.aiff", with_chunk_length(data, b"SSND", ">", LENGTHS[length]))
    assert heard(path).seconds == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("lost", [200, 2000])
@pytest.mark.parametrize("kind", ["wav", "aiff"])
def test_what_lacks_more_than_a_header_was_cut_off(tmp_path: Path, kind: str, lost: int) -> None:
    data = write_sound(tmp_path / f"whole.{kind}", speech(1.0), RATE).read_bytes()
    assert "bytes of sound: it was cut off" in refusal(written(tmp_path / f"voice.{kind}", data[:-lost]))


def test_an_mp3_that_miscounts_its_bytes_is_heard_if_its_frames_are_there(tmp_path: Path) -> None:
    """A tag at its end was counted, and taken off later."""
    data = bytearray(write_sound(tmp_path / "whole.mp3", speech(1.0), RATE).read_bytes())
    at = max(data.find(b"Xing"), data.find(b"Info")) + 12
    counted = int.from_bytes(data[at : at + 4], "big")
    data[at : at + 4] = (counted + 4000).to_bytes(4, "big")
    path = written(tmp_path / "voice.mp3", bytes(data))
    assert heard(path).seconds == pytest.approx(1.0, abs=0.03)
    assert "cut off" in refusal(written(path, bytes(data[: len(data) // 2])))


def test_an_m4a_that_is_cut_behind_its_sound_is_heard(tmp_path: Path) -> None:
    data = write_sound(tmp_path / "whole.m4a", speech(1.0), RATE, movflags="faststart").read_bytes()
    path = written(tmp_path / "voice.m4a", data + struct.pack(">I", 500) + b"free" + bytes(20))
    assert heard(path).seconds == pytest.approx(1.0, abs=0.01)
    assert "cut off" in refusal(written(path, data[:-1000]))


def test_a_matroska_that_is_cut_behind_its_sound_is_heard(tmp_path: Path) -> None:
    """Its index stands at the end."""
    data = write_sound(tmp_path / "whole.webm", speech(2.0), RATE).read_bytes()
    cues = data.rindex(b"\x1cS\xbbk")
    assert heard(written(tmp_path / "voice.webm", data[: cues + 6])).seconds == pytest.approx(2.0, abs=0.01)
    assert "cut off" in refusal(written(tmp_path / "voice.webm", data[: cues // 2]))


# What came instead


def png() -> bytes:
    rows = zlib.compress((b"\0" + bytes(3 * 64)) * 64)
    parts = ((b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


CAME = {
    "image/png": png(),
    "image/heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200),
    "image/gif": b"GIF89a" + bytes(200),
    "text/html": b"<!doctype html><html>Not found</html>",
    "application/pdf": b"%PDF-1.7\n" + bytes(200),
    "audio/amr": b"#!AMR\n" + bytes(200),
    "audio/x-caf": b"caff\0\1\0\0desc" + bytes(200),
    "video/x-ms-asf": b"\x30\x26\xb2\x75\x8e\x66\xcf\x11" + bytes(200),
}


@pytest.mark.parametrize("media_type", CAME)
def test_what_came_is_named_in_the_refusal(tmp_path: Path, media_type: str) -> None:
    path = written(tmp_path / "voice", CAME[media_type])
    assert refusal(path) == (
        f"it is {media_type}; it must be wav, mp3, flac, ogg, m4a, aac, aiff, webm or mkv"
    )
