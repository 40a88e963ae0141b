"""The video file: H.264 at exactly 25 frames a second, and the caller's audio as AAC.

    add(frames) ──> fragments of MP4 ──> take(): the bytes since the last call
    finish() ──> the fragments remuxed into one file that begins with its index (faststart) ──> checked

The video can be played from its first part on. A fragment has a fifth of a second, so that even the shortest
chunk fills one. Nothing is encoded twice. Each chunk is encoded by itself (`end_chunk`), so what comes after
it does not depend on how it was encoded: a file that goes on from the packets of another (`read_back`), with
the same audio, has the same bytes as one that was made in one go. The audio is cut to the length of the
video, to the sample; its time stamps are counted samples, not summed floats. The file declares the colours of
BT.709, since players would otherwise choose by the size. The file's comment is JSON about how the video was
made.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import av
import numpy as np
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from numpy.typing import NDArray

from stoker.models.talking_video.audio.recording import recorded, resampled
from stoker.models.talking_video.sampling.chunks import FPS
from stoker.models.talking_video.video.read_back import END, EncodedFrame

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
"""The number of threads is fixed, since the bytes that x264 writes depend on it."""

AUDIO_RATES: Final = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
"""Rates of AAC that every player knows; audio of another rate gets the next higher one, or the highest."""

GLOBAL_HEADER: Final = av.codec.context.Flags.global_header

PACKET: Final = 1024
"""Samples of a packet of AAC."""

AUDIO_BIT_RATE: Final = 192_000
"""Bits a second. With the library's default of 128,000 the first packet crackles if speech begins at once."""


class BrokenVideoFile(Exception):
    """The finished file is not what it should be; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The contents of a finished file."""

    frames: int
    width: int
    height: int
    seconds: float


@functools.cache
def video_encoder(device: str) -> str:
    """Returns NVENC if it works on this GPU, else x264. Every build of FFmpeg lists NVENC; only a trial shows
    whether there is a card for it and a driver that knows the options."""
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


def _encoder(width: int, height: int, device: str) -> Any:
    name = video_encoder(device)
    context = cast(Any, av.CodecContext.create(name, "w"))
    context.options = dict(QUALITY[name])
    context.framerate = FPS
    context.flags |= GLOBAL_HEADER  # as the muxer has it set for its own
    _set_up(context, width, height)
    return context


def _set_up(context: Any, width: int, height: int) -> None:
    context.width, context.height, context.pix_fmt = width, height, "yuv420p"
    context.time_base = Fraction(1, FPS)
    context.gop_size = FPS
    context.max_b_frames = 0
    context.colorspace = Colorspace.ITU709
    context.color_primaries = ColorPrimaries.BT709
    context.color_trc = ColorTrc.BT709
    context.color_range = ColorRange.MPEG


class VideoFile:
    """A video file, written below `folder`. `audio` is the caller's file, `frames` the number of frames that
    will be added, `about` the file's comment."""

    def __init__(
        self,
        folder: Path,
        audio: Path,
        width: int,
        height: int,
        frames: int,
        device: str = "cpu",
        about: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._folder, self._frames, self._done = folder, frames, 0
        self._new_encoder = functools.partial(_encoder, width, height, device)
        self._encoder: Any = None  # of the chunk that has begun
        self._end: deque[EncodedFrame] = deque(maxlen=END)
        self._about = (
            {"comment": json.dumps(dict(about), sort_keys=True, separators=(",", ":"))} if about else {}
        )
        with contextlib.ExitStack() as opening:
            self._written = _WrittenFile(folder / "fragments.mp4")
            opening.callback(self._written.close)
            self._container = av.open(self._written, "w", format="mp4", options=dict(FRAGMENTED))
            opening.callback(self._container.close)
            self._container.metadata.update(self._about)
            self._video = self._video_track(width, height, device)
            self._audio = _AudioTrack(self._container, audio, frames)
            opening.callback(self._audio.close)
            self._open = opening.pop_all()

    def _video_track(self, width: int, height: int, device: str) -> Any:
        encoder = video_encoder(device)
        track = cast(Any, self._container.add_stream(encoder, rate=FPS, options=dict(QUALITY[encoder])))
        _set_up(track.codec_context, width, height)
        return track

    def add(self, pixels: NDArray[np.uint8]) -> None:
        """Adds frames (n, H, W, 3), RGB, and the audio that belongs to them."""
        packets: list[Any] = []
        for n, one in enumerate(pixels, self._done):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(one), format="rgb24")
            coded = frame.reformat(
                format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG
            )
            coded.pts, coded.time_base = n, Fraction(1, FPS)
            self._encoder = self._encoder or self._new_encoder()
            packets += self._encoder.encode(coded)
        self._mux(len(pixels), packets)

    def end_chunk(self) -> None:
        """Ends a chunk: the next frame has an encoder of its own."""
        if self._encoder is not None:
            self._mux(0, self._encoder.encode(None))
            self._encoder = None

    def end(self) -> tuple[EncodedFrame, ...]:
        """Returns the last packets, some of which may be in no part yet: for `read_back`, at the end of a
        chunk."""
        return tuple(self._end)

    def go_on(self, packets: Iterable[Any]) -> None:
        """Adds the packets of another file, one of each frame, to this one that has none, with their audio.
        `take` then goes on after what that file has returned."""
        for packet in packets:
            self._mux(1, [packet])
            self._written.take()

    def _mux(self, frames: int, packets: Sequence[Any]) -> None:
        """Writes the packets of these new frames, and their audio. Sets each packet's duration: without it
        the last frame of a fragment would get another one."""
        self._end.extend(EncodedFrame(bytes(packet), packet.is_keyframe) for packet in packets)
        for packet in packets:
            packet.duration, packet.stream = 1, self._video
            self._container.mux(packet)
        self._done += frames
        self._audio.encode_until(self._done)

    def take(self) -> bytes:
        """Returns the bytes since the last call: whole MP4 boxes, to be played one after the other."""
        return self._written.take()

    def finish(self) -> tuple[Path, bytes]:
        """Returns the checked file, and the last part. Raises BrokenVideoFile."""
        self.end_chunk()
        self._audio.finish()
        self._open.close()
        last = self._written.take()
        out = self._folder / "video.mp4"
        _remux(self._folder / "fragments.mp4", out, self._about)
        checked(out, self._frames)
        return out, last

    def abandon(self) -> None:
        """Closes all files after an error."""
        self._open.close()


class _WrittenFile(io.RawIOBase):
    """A file that is only appended to, and that also keeps the new bytes in memory."""

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


class _AudioTrack:
    """The caller's audio as AAC, encoded as far as the video."""

    def __init__(self, container: Any, path: Path, frames: int) -> None:
        self._container = container
        self._source = recorded(path)
        self.rate = next((rate for rate in AUDIO_RATES if rate >= self._source.rate), AUDIO_RATES[-1])
        layout = "mono" if self._source.channels == 1 else "stereo"
        self._stream: Any = container.add_stream("aac", rate=self.rate)
        self._stream.layout, self._stream.bit_rate = layout, AUDIO_BIT_RATE
        self._fifo = av.AudioFifo()
        self._decoded = resampled(self._source.frames(), "fltp", layout, self.rate)
        self._end = frames * self.rate // FPS
        self._written = 0

    def encode_until(self, frames: int) -> None:
        """Encodes the audio of the first `frames` video frames, as far as there is any."""
        missing = min(frames * self.rate // FPS, self._end) - self._written
        while self._fifo.samples < missing and (frame := next(self._decoded, None)) is not None:
            self._fifo.write(frame)
        if missing > 0 and (part := self._fifo.read(min(missing, self._fifo.samples), partial=True)):
            part.pts, part.time_base = self._written, Fraction(1, self.rate)
            self._written += part.samples
            self._container.mux(self._stream.encode(part))

    def finish(self) -> None:
        self._container.mux(self._stream.encode(None))

    def close(self) -> None:
        self._source.close()


def _remux(source: Path, target: Path, about: Mapping[str, str]) -> None:
    """Copies the packets into a file with the index at the beginning."""
    with (
        av.open(str(source)) as fragments,
        av.open(str(target), "w", format="mp4", options=dict(FASTSTART)) as made,
    ):
        made.metadata.update(about)
        streams = {stream.index: made.add_stream_from_template(stream) for stream in fragments.streams}
        for packet in fragments.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                made.mux(packet)


def checked(path: Path, frames: int) -> Checked:
    """Reads a finished file as a player does. Raises BrokenVideoFile if it is wrong."""
    with av.open(str(path)) as file:
        if not file.streams.video or not file.streams.audio:
            raise BrokenVideoFile(
                f"the file has {len(file.streams.video)} video and {len(file.streams.audio)} audio tracks"
            )
        video, audio = file.streams.video[0], file.streams.audio[0]
        counted = dict.fromkeys((video, audio), 0)
        for packet in file.demux(video, audio):
            counted[packet.stream] += bool(packet.size)
        seconds = float((video.duration or 0) * (video.time_base or 0))
        if counted[video] != frames or video.average_rate != FPS or abs(seconds - frames / FPS) > 0.5 / FPS:
            raise BrokenVideoFile(
                f"the video has {counted[video]} frames at {video.average_rate} a second, {seconds:.3f} s;"
                f" it must have {frames} at {FPS}"
            )
        audio_s = counted[audio] * PACKET / audio.rate
        if not 0 <= audio_s - frames / FPS + PACKET / audio.rate < 4 * PACKET / audio.rate:
            raise BrokenVideoFile(f"the video has {audio_s:.3f} s of audio; it must have {frames / FPS:.3f}")
        return Checked(counted[video], video.width, video.height, seconds)


def about(path: Path) -> dict[str, Any] | None:
    """Returns how a video file was made, from its comment; None if the file has no such comment."""
    with av.open(str(path)) as file:
        text = file.metadata.get("comment", "")
    try:
        made = json.loads(text)
    except ValueError:
        return None
    return made if isinstance(made, dict) else None
