"""The file: H.264 at exactly 25 frames a second, and the caller's own sound as AAC.

    add(frames) ──> fragments of MP4 ──> take(): what was written since the last time
    finish() ──> the fragments once more, as one file that begins with its index (faststart) ──> checked

It can be played from its first piece on. A fragment is a fifth of a second, so that even the shortest chunk
has some; nothing is encoded twice, and only a fragment is in memory. Sound is cut to the length of the video,
to the sample; its time stamps are counted samples, never summed floats. Colours are those of BT.709, and the
file says so: else each player would choose by the size. What the film says of itself stands in its comment,
as JSON.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import av
import numpy as np
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from numpy.typing import NDArray

from stoker.models.talking_video.chunks import FPS
from stoker.models.talking_video.voice import opened, sounding

__all__ = ["Film", "FilmBroken", "about", "checked", "video_encoder"]

FRAGMENTED: Final = {
    "movflags": "frag_keyframe+delay_moov+default_base_moof",
    "frag_duration": "200000",
    "fflags": "+bitexact",
}
FASTSTART: Final = {"movflags": "+faststart", "fflags": "+bitexact"}
SOFTWARE, HARDWARE = "libx264", "h264_nvenc"
QUALITY: Final = {
    SOFTWARE: {"crf": "18", "preset": "veryfast", "tune": "zerolatency", "threads": "4"},
    HARDWARE: {"rc": "constqp", "qp": "20", "preset": "p4", "zerolatency": "1"},
}
"""The number of threads is fixed: x264 writes other bytes with another."""

SOUND_RATES: Final = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
"""Of AAC, those that every player knows; sound of another rate gets the next higher, or the highest."""

PACKET: Final = 1024
"""Samples of a packet of AAC."""

SOUND_BITS: Final = 192_000
"""A second. With the library's own 128,000 the first packet of a voice that begins at once cracks."""


class FilmBroken(Exception):
    """The file that was made is not what it should be; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a finished file holds."""

    frames: int
    width: int
    height: int
    seconds: float


@functools.cache
def video_encoder(device: str) -> str:
    """NVENC where it works on this GPU. Every build of FFmpeg names it: only a trial shows whether there is a
    card for it, and a driver that knows the options."""
    if device == "cpu":
        return SOFTWARE
    frame = av.VideoFrame.from_ndarray(np.zeros((256, 256, 3), np.uint8), format="rgb24")
    try:
        context = av.CodecContext.create(HARDWARE, "w")
        context.width, context.height, context.pix_fmt = 256, 256, "yuv420p"  # type: ignore[attr-defined]
        context.time_base, context.options = Fraction(1, FPS), dict(QUALITY[HARDWARE])
        context.encode(frame.reformat(format="yuv420p"))  # type: ignore[attr-defined]
    except (av.error.FFmpegError, ValueError):
        return SOFTWARE
    return HARDWARE


class Film:
    """Writes below `folder`; `sound` is the caller's file, `frames` how many there will be, `made` what is
    said of how it was made."""

    def __init__(
        self,
        folder: Path,
        sound: Path,
        width: int,
        height: int,
        frames: int,
        device: str = "cpu",
        made: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._folder, self._frames, self._done = folder, frames, 0
        self._about = (
            {"comment": json.dumps(dict(made), sort_keys=True, separators=(",", ":"))} if made else {}
        )
        with contextlib.ExitStack() as opening:
            self._pieces = _Pieces(folder / "pieces.mp4")
            opening.callback(self._pieces.close)
            self._container = av.open(self._pieces, "w", format="mp4", options=dict(FRAGMENTED))
            opening.callback(self._container.close)
            self._container.metadata.update(self._about)
            self._video = self._picture_track(width, height, device)
            self._sound = _Sound(self._container, sound, frames)
            opening.callback(self._sound.close)
            self._open = opening.pop_all()

    def _picture_track(self, width: int, height: int, device: str) -> Any:
        encoder = video_encoder(device)
        track = cast(Any, self._container.add_stream(encoder, rate=FPS, options=dict(QUALITY[encoder])))
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        track.codec_context.time_base = Fraction(1, FPS)
        track.codec_context.gop_size = FPS
        track.codec_context.max_b_frames = 0
        track.codec_context.colorspace = Colorspace.ITU709
        track.codec_context.color_primaries = ColorPrimaries.BT709
        track.codec_context.color_trc = ColorTrc.BT709
        track.codec_context.color_range = ColorRange.MPEG
        return track

    def add(self, pixels: NDArray[np.uint8]) -> None:
        """Frames (n, H, W, 3), RGB, and the sound that goes with them."""
        for one in pixels:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(one), format="rgb24")
            coded = frame.reformat(
                format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG
            )
            coded.pts, coded.time_base = self._done, Fraction(1, FPS)
            self._mux(self._video.encode(coded))
            self._done += 1
        self._sound.until(self._done)

    def _mux(self, packets: Any) -> None:
        """A fragment would give its last frame a length of its own, if the packet does not say one."""
        for packet in packets:
            packet.duration = 1
            self._container.mux(packet)

    def take(self) -> bytes:
        """What was written since the last time: whole MP4 boxes, to be played one after the other."""
        return self._pieces.take()

    def finish(self) -> tuple[Path, bytes]:
        """The checked file, and the last piece. Raises FilmBroken."""
        self._mux(self._video.encode(None))
        self._sound.finish()
        self._open.close()
        last = self._pieces.take()
        out = self._folder / "video.mp4"
        _remux(self._folder / "pieces.mp4", out, self._about)
        checked(out, self._frames)
        return out, last

    def abandon(self) -> None:
        """After an error: closes what is open."""
        self._open.close()


class _Pieces(io.RawIOBase):
    """A file that can only be appended to, and tells what is new."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("wb")
        self._new = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._new += data
        return len(data)

    def take(self) -> bytes:
        taken, self._new = bytes(self._new), bytearray()
        return taken

    def close(self) -> None:
        self._file.close()
        super().close()


class _Sound:
    """The caller's sound as AAC, given out as far as the video is."""

    def __init__(self, container: Any, path: Path, frames: int) -> None:
        self._container = container
        self._source = opened(path)
        given = self._source.streams.audio[0]
        self.rate = next((rate for rate in SOUND_RATES if rate >= given.rate), SOUND_RATES[-1])
        layout = "mono" if given.codec_context.channels == 1 else "stereo"
        self._stream: Any = container.add_stream("aac", rate=self.rate)
        self._stream.layout, self._stream.bit_rate = layout, SOUND_BITS
        self._resampler = av.AudioResampler(format="fltp", layout=layout, rate=self.rate)
        self._fifo = av.AudioFifo()
        self._decoded = self._decode(given)
        self._end = frames * self.rate // FPS
        self._written = 0

    def _decode(self, stream: Any) -> Iterator[Any]:
        for frame in sounding(self._source, stream):
            frame.pts = None
            yield from self._resampler.resample(frame)
        yield from self._resampler.resample(None)

    def until(self, frames: int) -> None:
        """Encodes the sound of the first so many video frames, as far as there is any."""
        wanted = min(frames * self.rate // FPS, self._end) - self._written
        while self._fifo.samples < wanted and (frame := next(self._decoded, None)) is not None:
            frame.pts = None
            self._fifo.write(frame)
        if wanted > 0 and (part := self._fifo.read(min(wanted, self._fifo.samples), partial=True)):
            part.pts, part.time_base = self._written, Fraction(1, self.rate)
            self._written += part.samples
            self._container.mux(self._stream.encode(part))

    def finish(self) -> None:
        self._container.mux(self._stream.encode(None))

    def close(self) -> None:
        self._source.close()


def _remux(source: Path, target: Path, about: Mapping[str, str]) -> None:
    """The same packets, with the index at the beginning."""
    with (
        av.open(str(source)) as given,
        av.open(str(target), "w", format="mp4", options=dict(FASTSTART)) as made,
    ):
        made.metadata.update(about)
        streams = {stream.index: made.add_stream_from_template(stream) for stream in given.streams}
        for packet in given.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                made.mux(packet)


def checked(path: Path, frames: int) -> Checked:
    """Looks at a finished file as a player does. Raises FilmBroken."""
    with av.open(str(path)) as film:
        if not film.streams.video or not film.streams.audio:
            raise FilmBroken(
                f"the video has {len(film.streams.video)} picture and {len(film.streams.audio)} sound tracks"
            )
        video, sound = film.streams.video[0], film.streams.audio[0]
        counted = dict.fromkeys((video, sound), 0)
        for packet in film.demux(video, sound):
            counted[packet.stream] += bool(packet.size)
        seconds = float((video.duration or 0) * (video.time_base or 0))
        if counted[video] != frames or video.average_rate != FPS or abs(seconds - frames / FPS) > 0.5 / FPS:
            raise FilmBroken(
                f"the video has {counted[video]} frames at {video.average_rate} a second, {seconds:.3f} s;"
                f" it must have {frames} at {FPS}"
            )
        heard = counted[sound] * PACKET / sound.rate
        if not 0 <= heard - frames / FPS + PACKET / sound.rate < 4 * PACKET / sound.rate:
            raise FilmBroken(f"the video has {heard:.3f} s of sound; it must have {frames / FPS:.3f}")
        return Checked(counted[video], video.width, video.height, seconds)


def about(path: Path) -> dict[str, Any] | None:
    """What a film says of how it was made, or None where it says nothing of the kind."""
    with av.open(str(path)) as film:
        text = film.metadata.get("comment", "")
    try:
        made = json.loads(text)
    except ValueError:
        return None
    return made if isinstance(made, dict) else None
