"""The packets that are read back from a video's parts are those that its encoder made, whatever the audio."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stoker.models.talking_video.video.read_back import END, CannotGoOn, EncodedFrame, read_back
from stoker.models.talking_video.video.video_file import AUDIO_RATES, VideoFile
from tests.media_files import write_sound
from tests.models.talking_video.video.test_video_file import beeps, images

CHUNKS = (17, 12, 3, 1, 60, 5, 30)
FRAMES = sum(CHUNKS)
Packet = tuple[bytes, int, bool]


class Recorded(VideoFile):
    """A video file that remembers what its encoder made."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.made: list[Packet] = []

    def _mux(self, frames: int, packets: Any) -> None:
        self.made += [about(packet) for packet in packets]
        super()._mux(frames, packets)


def about(packet: Any) -> Packet:
    """What the muxer makes of it: it replaces start codes, of three bytes or four, by lengths."""
    return bytes(packet).replace(b"\0\0\0\1", b"\0\0\1"), packet.pts, packet.is_keyframe


def opened(folder: Path, rate: int, frames: int = FRAMES) -> Recorded:
    folder.mkdir(exist_ok=True)
    sound = write_sound(folder / "voice.wav", beeps(rate * (frames + 10) // 25, rate), rate)
    return Recorded(folder, sound, 96, 64, frames)


@pytest.mark.parametrize("rate", [*AUDIO_RATES, 11_025, 96_000])
@pytest.mark.slow
@pytest.mark.numbers
def test_packets_are_the_encoders_byte_for_byte_at_the_end_of_each_chunk(tmp_path: Path, rate: int) -> None:
    file, pixels, done = opened(tmp_path, rate), images(FRAMES), 0
    parts = tmp_path / "parts.mp4"
    try:
        for count in CHUNKS:
            added = [done, *range(done + 1, done + count, 4), done + count]  # as a decoder gives them
            for first, after in pairwise(added):
                file.add(pixels[first:after])
            file.end_chunk()
            done += count
            with parts.open("ab") as every:
                every.write(file.take())
            assert len(file.end()) == min(done, END)
            assert list(map(about, read_back(parts, file.end(), done))) == file.made
        assert done > 2 * END, "most of them are read from the parts"
        assert [number for _, number, _ in file.made] == list(range(FRAMES))
    finally:
        file.abandon()


@pytest.mark.parametrize("rate", [8_000, 44_100])
@pytest.mark.slow
@pytest.mark.numbers
def test_a_file_that_goes_on_is_the_same_byte_for_byte(tmp_path: Path, rate: int) -> None:
    whole, pixels = opened(tmp_path / "whole", rate), images(FRAMES)
    taken, saved, done = [], [], 0
    for count in CHUNKS:
        whole.add(pixels[done : done + count])
        whole.end_chunk()
        done += count
        taken.append(whole.take())
        saved.append((done, whole.end()))
    finished, last = whole.finish()
    for number in (1, 4, 5):
        begun, end = saved[number]
        again = opened(tmp_path / str(number), rate)
        parts = tmp_path / f"parts-{number}.mp4"
        parts.write_bytes(b"".join(taken[: number + 1]))
        again.go_on(read_back(parts, end, begun))
        assert again.end() == end
        for count, part in zip(CHUNKS[number + 1 :], taken[number + 1 :], strict=True):
            again.add(pixels[begun : begun + count])
            again.end_chunk()
            begun += count
            assert again.take() == part
        path, rest = again.finish()
        assert (path.read_bytes(), rest) == (finished.read_bytes(), last)


def test_what_does_not_join_is_refused_before_anything_is_added(tmp_path: Path) -> None:
    file = opened(tmp_path, 16_000)
    file.add(images(100))
    file.end_chunk()
    parts = tmp_path / "parts.mp4"
    parts.write_bytes(file.take())
    file.abandon()
    with pytest.raises(CannotGoOn, match="the parts have 92 frames, and the save begins at frame 99"):
        read_back(parts, file.end()[-1:], 100)
    parts.write_bytes(b"no video")
    with pytest.raises(CannotGoOn, match="the parts of the video cannot be read: "):
        read_back(parts, file.end(), 100)
    end = [EncodedFrame(b"\0\0\0\1x", True)]
    assert [about(one) for one in read_back(parts, end, 1)] == [(b"\0\0\1x", 0, True)], "no part is needed"
