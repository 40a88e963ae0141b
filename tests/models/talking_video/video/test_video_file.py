"""The file that is made: 25 frames a second, the caller's sound to the sample, playable from its first
piece."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from stoker.models.talking_video.video import video_file
from stoker.models.talking_video.video.video_file import (
    BrokenVideoFile,
    VideoFile,
    about,
    checked,
    video_encoder,
)
from tests.media_files import Sound, lag, read_sound, tone, video_file_without_sound, with_gap, write_sound
from tests.open_files import open_files

FRAMES = 57
PARTS = (17, 12, 12, 16)
"""As chunks give them."""
MADE = {"seed": 7, "versions": {"stoker": "0"}}


@dataclass(frozen=True)
class Made:
    """A finished video file of FRAMES frames, 64 x 96, and what it was made from."""

    path: Path
    parts: list[bytes]
    pixels: NDArray[np.uint8]
    sound: Sound
    rate: int

    def so_far(self, count: int) -> io.BytesIO:
        return io.BytesIO(b"".join(self.parts[:count]))


def images(count: int = FRAMES) -> NDArray[np.uint8]:
    """(count, 64, 96, 3): a bright bar that moves, so that each frame differs from its neighbours."""
    pixels = np.full((count, 64, 96, 3), 60, np.uint8)
    for number in range(count):
        pixels[number, :, number % 88 : number % 88 + 8] = 220
    return pixels


def position_of(frame: NDArray[np.uint8]) -> int:
    """Of the bar, which is 8 wide."""
    return int(np.convolve(frame[..., 1].mean(axis=0), np.ones(8), "valid").argmax())


def beeps(samples: int, rate: int) -> Sound:
    """(1, samples): bursts below 2 kHz, each of another pitch, that AAC keeps well."""
    times = np.arange(samples) / rate
    sound = np.zeros(samples)
    for number, start in enumerate(np.arange(0.05, samples / rate, 0.23)):
        burst = np.exp(-(((times - start - 0.03) / 0.01) ** 2))
        sound += 0.5 * burst * np.sin(2 * np.pi * (300 + 170 * number) * times)
    return np.asarray(sound[None], np.float32)


def shoot(folder: Path, sound: Path, parts: tuple[int, ...] = PARTS, frames: int = FRAMES) -> list[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    made = VideoFile(folder, sound, 96, 64, frames, about=MADE)
    pixels, taken, done = images(sum(parts)), [], 0
    for part in parts:
        made.add(pixels[done : done + part])
        done += part
        taken.append(made.take())
    _, last = made.finish()
    return [*taken, last]


def video_file_of(folder: Path, rate: int, channels: int) -> Made:
    sound = beeps(round(2.3 * rate), rate)
    if channels == 2:
        sound = np.concatenate([sound, 0.5 * sound[:, ::-1]])
    taken = shoot(folder, write_sound(folder / "voice.wav", sound, rate))
    return Made(folder / "video.mp4", taken, images(), sound, rate)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return video_file_of(tmp_path_factory.mktemp("video"), 48_000, 2)


def frames_of(source: Any) -> list[Any]:
    with av.open(source) as container:
        return list(container.decode(video=0))


def test_every_frame_is_there_at_its_time(made: Made) -> None:
    frames = frames_of(str(made.path))
    assert [frame.time for frame in frames] == pytest.approx([n / 25 for n in range(FRAMES)], abs=1e-9)
    found = [position_of(frame.to_ndarray(format="rgb24")) for frame in frames]
    assert found == [number % 88 for number in range(FRAMES)]


def test_it_looks_as_it_was_drawn(made: Made) -> None:
    frames = frames_of(str(made.path))
    error = np.abs(frames[30].to_ndarray(format="rgb24").astype(int) - made.pixels[30])
    assert error.mean() < 3


@pytest.mark.parametrize("name", ["video.mp4", "fragments.mp4"])
def test_its_colours_are_those_that_it_declares(tmp_path: Path, name: str) -> None:
    """BT.709, by its formula. Of a video file that says nothing players take HD for BT.709, and less for
    BT.601."""
    colours = np.array([(200, 40, 40), (60, 180, 90), (225, 180, 150), (16, 16, 240)], np.uint8)
    drawn = np.broadcast_to(np.repeat(colours, 32, axis=0), (25, 64, 128, 3))
    new = VideoFile(tmp_path, write_sound(tmp_path / "voice.wav", np.zeros((1, 16_000)), 16_000), 128, 64, 25)
    new.add(drawn)
    new.finish()
    with av.open(str(tmp_path / name)) as container:
        context = container.streams.video[0].codec_context
        expected = (context.colorspace, context.color_primaries, context.color_trc, context.color_range)
        assert expected == (1, 1, 1, 1)
        planes = next(container.decode(video=0)).to_ndarray(format="yuv444p")[:, 32, 16::32]
    red, green, blue = colours.T / 255
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    wanted = [
        16 + 219 * light,
        128 + 224 * (blue - light) / 1.8556,
        128 + 224 * (red - light) / 1.5748,
    ]
    np.testing.assert_allclose(planes, wanted, atol=2)


def test_streams_rates_and_lengths(made: Made) -> None:
    with av.open(str(made.path)) as container:
        video, sound = container.streams.video[0], container.streams.audio[0]
        assert (video.codec_context.name, sound.codec_context.name) == ("h264", "aac")
        assert {video.average_rate, video.base_rate} == {Fraction(25)}
        assert video.frames == FRAMES
        assert video.duration * video.time_base == Fraction(FRAMES, 25)  # type: ignore[operator]
        assert sound.duration * sound.time_base == Fraction(FRAMES, 25)  # type: ignore[operator]
        assert (video.start_time, sound.start_time) == (0, 0)
        assert (video.pix_fmt, video.width, video.height) == ("yuv420p", 96, 64)
        assert (sound.rate, sound.layout.name) == (48_000, "stereo")
    assert checked(made.path, FRAMES) == video_file.Checked(FRAMES, 96, 64, FRAMES / 25)


def test_a_key_frame_at_least_each_second(made: Made) -> None:
    keys = [number for number, frame in enumerate(frames_of(str(made.path))) if frame.key_frame]
    assert keys[0] == 0
    assert all(later - earlier <= 25 for earlier, later in pairwise([*keys, FRAMES]))


def test_it_begins_with_its_index(made: Made) -> None:
    assert [kind for kind, _ in boxes(made.path.read_bytes())] == ["ftyp", "moov", "free", "mdat"]


def boxes(data: bytes) -> list[tuple[str, bytes]]:
    """The outer boxes of a file, which must end with the last."""
    found, position = [], 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        assert 8 <= size <= len(data) - position
        found.append((data[position + 4 : position + 8].decode(), data[position : position + size]))
        position += size
    return found


def test_parts_are_whole_boxes_and_the_first_begins_with_the_index(made: Made) -> None:
    kinds = [[kind for kind, _ in boxes(part)] for part in made.parts]
    assert kinds[0][:2] == ["ftyp", "moov"]
    assert set(kinds[0][2:]) == {"moof", "mdat"}
    for later in kinds[1:-1]:
        assert later == ["moof", "mdat"] * (len(later) // 2)
        assert later
    assert set(kinds[-1]) == {"moof", "mdat", "mfra"}


def test_the_parts_are_the_file_of_fragments(made: Made) -> None:
    assert b"".join(made.parts) == (made.path.parent / "fragments.mp4").read_bytes()


def test_it_can_be_played_from_the_first_part_on_and_further_with_each(made: Made) -> None:
    """No more than a third of a second is held back."""
    orders = []
    for count in range(1, len(made.parts) + 1):
        frames = frames_of(made.so_far(count))
        sound, rate = read_sound(made.so_far(count))
        assert [frame.pts * frame.time_base * 25 for frame in frames] == list(range(len(frames)))
        assert sound.shape[1] / rate >= len(frames) / 25 - 0.05
        orders.append(len(frames))
        assert sum(PARTS[:count]) - len(frames) <= 8
    assert orders[-1] == FRAMES
    assert sorted(set(orders)) == orders


@pytest.mark.parametrize(
    ("rate", "channels", "source_file"),
    [(8_000, 1, 8_000), (44_100, 2, 44_100), (48_000, 1, 48_000), (192_000, 2, 48_000), (11_025, 1, 16_000)],
)
def test_the_sound_is_the_callers_to_the_sample(
    tmp_path: Path, rate: int, channels: int, source_file: int
) -> None:
    made = video_file_of(tmp_path, rate, channels)
    found, out = read_sound(made.path)
    assert (out, len(found)) == (source_file, channels)
    length = FRAMES * source_file // 25
    assert 0 <= found.shape[1] - length < 1024
    for decoded, expected in zip(found, made.sound, strict=True):
        wanted = _at_rate(expected, rate, source_file)[:length]
        assert lag(decoded, wanted) == 0
        error = decoded[100 : length - 100] - wanted[100 : length - 100]
        assert np.square(error).mean() < 0.01 * np.square(wanted).mean()


def _at_rate(expected: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    times = np.arange(len(expected) * wanted // rate) / wanted
    return np.interp(times, np.arange(len(expected)) / rate, expected).astype(np.float32)


def test_left_stays_left(made: Made) -> None:
    found, _ = read_sound(made.path)
    length = FRAMES * made.rate // 25
    likeness = np.corrcoef(np.concatenate([found[:, :length], made.sound[:, :length]]))
    assert likeness[0, 2] > 0.95
    assert likeness[1, 3] > 0.95
    assert abs(likeness[0, 3]) < 0.5


def test_speech_that_begins_at_once_does_not_crackle(tmp_path: Path) -> None:
    """It has been through AAC before, as a caller's may have."""
    source_file = write_sound(tmp_path / "voice.m4a", tone(13_230, 44_100), 44_100)
    begun = VideoFile(tmp_path, source_file, 96, 64, 7)
    begun.add(images(7))
    begun.finish()
    found, wanted = read_sound(tmp_path / "video.mp4")[0][0, :12_348], read_sound(source_file)[0][0, :12_348]
    assert np.abs(found - wanted).max() < 0.05


def test_silence_that_the_time_stamps_leave_out_is_in_the_video_file(tmp_path: Path) -> None:
    expected, late = beeps(96_000, 48_000), 47 * 1024
    whole = write_sound(tmp_path / "whole.m4a", expected, 48_000)
    begun = VideoFile(tmp_path, with_gap(whole, tmp_path / "voice.m4a", late, 24_000), 96, 64, FRAMES)
    begun.add(images())
    begun.finish()
    found = read_sound(tmp_path / "video.mp4")[0][0]
    assert lag(found[:late], expected[0, :late]) == 0
    assert lag(found[late:], expected[0, late:]) == 24_000


def test_a_sound_that_begins_late_does_so_in_the_video_file(tmp_path: Path) -> None:
    expected = beeps(96_000, 48_000)
    whole = write_sound(tmp_path / "whole.m4a", expected, 48_000)
    late = with_gap(whole, tmp_path / "voice.m4a", -1024, 24_000, movie_timescale="48000")
    begun = VideoFile(tmp_path, late, 96, 64, FRAMES)
    begun.add(images())
    begun.finish()
    assert lag(read_sound(tmp_path / "video.mp4")[0][0], expected[0]) == 24_000


def test_sound_beyond_the_last_frame_is_cut_off(tmp_path: Path) -> None:
    sound = write_sound(tmp_path / "voice.wav", beeps(48_000 * 3, 48_000), 48_000)
    shoot(tmp_path, sound)
    with av.open(str(tmp_path / "video.mp4")) as container:
        assert container.duration == FRAMES * av.time_base // 25


def test_the_same_frames_and_sound_give_the_same_bytes(made: Made, tmp_path: Path) -> None:
    again = shoot(tmp_path, made.path.parent / "voice.wav")
    assert again == made.parts
    assert (tmp_path / "video.mp4").read_bytes() == made.path.read_bytes()


def test_how_frames_come_in_does_not_change_the_video_file(made: Made, tmp_path: Path) -> None:
    shoot(tmp_path, made.path.parent / "voice.wav", parts=(1, 4, 4, 30, 18))
    assert (tmp_path / "video.mp4").read_bytes() == made.path.read_bytes()


def test_the_video_file_has_metadata_about_its_making(made: Made, tmp_path: Path) -> None:
    assert about(made.path) == MADE
    assert about(video_file_without_sound(tmp_path / "plain.mp4")) is None
    with av.open(made.so_far(1)) as first:
        assert json.loads(first.metadata["comment"]) == MADE


@pytest.mark.parametrize(("parts", "why"), [((17, 39), "56 frames"), ((17, 41), "58 frames")])
def test_a_video_file_with_a_frame_too_few_or_too_many_is_refused(
    made: Made, tmp_path: Path, parts: tuple[int, ...], why: str
) -> None:
    with pytest.raises(BrokenVideoFile, match=f"has {why} at 25 a second.* must have 57 at 25"):
        shoot(tmp_path, made.path.parent / "voice.wav", parts)


def test_a_video_file_without_sound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenVideoFile, match="1 video and 0 audio tracks"):
        checked(video_file_without_sound(tmp_path / "silent.mp4"), 5)


@pytest.mark.parametrize(
    ("kind", "kept", "why"),
    [("audio", 0.0, "0 audio"), ("audio", 0.8, "s of audio"), ("video", 0.9, "frames")],
)
def test_a_video_file_that_lost_some_of_it_is_refused(
    made: Made, tmp_path: Path, kind: str, kept: float, why: str
) -> None:
    broken = tmp_path / "broken.mp4"
    with av.open(str(made.path)) as source_file, av.open(str(broken), "w") as out:
        tracks = [stream for stream in source_file.streams if kept or stream.type != kind]
        streams = {stream.index: out.add_stream_from_template(stream) for stream in tracks}
        for packet in source_file.demux(*tracks):
            if packet.dts is None or (
                packet.stream.type == kind and float(packet.pts or 0) > _end(packet) * kept
            ):
                continue
            packet.stream = streams[packet.stream.index]
            out.mux(packet)
    with pytest.raises(BrokenVideoFile, match=why):
        checked(broken, FRAMES)


def _end(packet: Any) -> float:
    return float(FRAMES / 25 / packet.time_base)


def test_a_video_file_of_another_rate_is_refused(tmp_path: Path, made: Made) -> None:
    slow = tmp_path / "slow.mp4"
    with av.open(str(made.path)) as source_file, av.open(str(slow), "w") as out:
        streams = {stream.index: out.add_stream_from_template(stream) for stream in source_file.streams}
        for packet in source_file.demux():
            if packet.dts is None or packet.pts is None:
                continue
            if packet.stream.type == "video":
                packet.pts, packet.dts, packet.duration = packet.pts * 2, packet.dts * 2, packet.duration * 2
                # type: ignore[operator]
            packet.stream = streams[packet.stream.index]
            out.mux(packet)
    with pytest.raises(BrokenVideoFile, match="at 25/2 a second"):
        checked(slow, FRAMES)


@contextlib.contextmanager
def no_file_left_open() -> Iterator[None]:
    before = open_files()
    yield
    assert not open_files() - before


def test_what_was_opened_is_closed(made: Made, tmp_path: Path) -> None:
    with no_file_left_open():
        shoot(tmp_path, made.path.parent / "voice.wav")


@pytest.mark.parametrize("added", [0, 1, 40])
def test_an_abandoned_video_file_leaves_no_file_open(made: Made, tmp_path: Path, added: int) -> None:
    with no_file_left_open():
        begun = VideoFile(tmp_path, made.path.parent / "voice.wav", 96, 64, FRAMES)
        begun.add(images()[:added])
        begun.abandon()
        begun.abandon()


def test_a_video_file_that_cannot_begin_leaves_no_file_open(made: Made, tmp_path: Path) -> None:
    with no_file_left_open(), pytest.raises(FileNotFoundError):
        VideoFile(tmp_path, tmp_path / "no.wav", 96, 64, FRAMES)
    (tmp_path / "bad.wav").write_bytes(b"bad")
    with no_file_left_open(), pytest.raises(av.error.FFmpegError):
        VideoFile(tmp_path, tmp_path / "bad.wav", 96, 64, FRAMES)


def test_with_a_gpu_that_does_not_encode_the_cpu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there is a card or not: the name of an encoder proves nothing."""
    video_encoder.cache_clear()
    assert video_encoder("cpu") == "libx264"
    monkeypatch.setattr(video_file, "HARDWARE", "no_such_encoder")
    monkeypatch.setitem(video_file.QUALITY, "no_such_encoder", {})
    assert video_encoder("cuda") == "libx264"
    video_encoder.cache_clear()


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU, and it may well encode")
def test_without_a_card_its_encoder_is_not_chosen() -> None:
    video_encoder.cache_clear()
    assert video_encoder("cuda") == "libx264"
    video_encoder.cache_clear()


def test_a_hardware_encoder_that_works_is_chosen_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    video_encoder.cache_clear()
    monkeypatch.setattr(video_file, "HARDWARE", "mpeg4")  # one that works everywhere
    monkeypatch.setitem(video_file.QUALITY, "mpeg4", {"b": "100000"})
    assert video_encoder("cuda") == "mpeg4"
    assert video_encoder("cpu") == "libx264"
    video_encoder.cache_clear()


def test_an_encoder_that_does_not_take_its_options_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    video_encoder.cache_clear()
    monkeypatch.setattr(video_file, "HARDWARE", "mpeg4")
    monkeypatch.setitem(video_file.QUALITY, "mpeg4", {"b": "as a newer driver has it"})
    assert video_encoder("cuda") == "libx264"
    video_encoder.cache_clear()


def probed(path: Path) -> dict[str, Any]:
    if shutil.which("ffprobe") is None:
        pytest.skip("there is no ffprobe (package ffmpeg)")
    command = ["ffprobe", "-v", "error", "-of", "json", "-show_streams", "-show_format", "-count_frames"]
    printed = subprocess.run([*command, str(path)], check=True, capture_output=True, text=True)
    assert printed.stderr == ""
    found: dict[str, Any] = json.loads(printed.stdout)
    video, sound = found["streams"]
    assert (video["codec_name"], sound["codec_name"]) == ("h264", "aac")
    assert (video["nb_read_frames"], video["r_frame_rate"]) == (str(FRAMES), "25/1")
    assert (float(video["start_time"]), float(video["duration"])) == (0.0, 2.28)
    assert json.loads(found["format"]["tags"]["comment"]) == MADE
    return found


def test_ffprobe_agrees(made: Made) -> None:
    found = probed(made.path)
    video, sound = found["streams"]
    assert {float(video["duration"]), float(sound["duration"]), float(found["format"]["duration"])} == {2.28}
    assert float(sound["start_time"]) == 0.0


def test_ffprobe_agrees_about_the_parts(made: Made, tmp_path: Path) -> None:
    """What the encoder puts before the sound lies before the first frame, and what fills its last packet
    after the last: neither moves the audio."""
    (tmp_path / "fragments.mp4").write_bytes(b"".join(made.parts))
    _, sound = probed(tmp_path / "fragments.mp4")["streams"]
    packet = 1024 / made.rate
    assert float(sound["start_time"]) == pytest.approx(-packet, abs=1e-5)
    end = float(sound["start_time"]) + float(sound["duration"])
    assert 2.28 <= end < 2.28 + packet
