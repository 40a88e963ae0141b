"""The caller's sound as the encoder wants it: 16 kHz, mono, at one loudness, in a file of the job's folder.

    any file that FFmpeg reads ──decoded, bit by bit──> floats on disk ──> Voice: samples, and how many frames

Memory does not grow with the length. Loudness is brought to -23 LUFS (ITU-R BS.1770, EBU R 128) in steps of a
tenth of a decibel; silence is left alone, for making it loud would make it babble.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
from numpy.typing import NDArray

from stoker.models.talking_video import wholeness
from stoker.models.talking_video.chunks import video_frames
from stoker.models.talking_video.limits import DEFAULT, Limits
from stoker.models.talking_video.speech import RATE, Samples

__all__ = ["InvalidAudio", "Voice", "heard", "opened", "sounding"]

LOUDNESS: Final = -23.0
SILENCE: Final = -70.0
"""LUFS: the gate of BS.1770, below which nothing is measured."""

QUIET: Final = 1e-3
"""The least deviation that is divided by: silence stays silent."""

BLOCK: Final = 1 << 20
"""Bytes."""

OPTIONS: Final = {"format_whitelist": "wav,mp3,flac,ogg,mov", "protocol_whitelist": "file"}
"""FFmpeg reads play lists, too: files that name other files and addresses."""

GAP: Final = 0.1
"""Seconds: what time stamps leave out less of is rounding."""

PACKET: Final = 1 << 12
"""Bytes."""

SLACK: Final = 2304
"""Samples that a file may have more or less than it says: two packets of an MP3, one of any other format."""

LOUDEST: Final = 100.0
"""Where 1 is what 16 bits hold: numbers of 16 bits that were written as floats are no voice, and AAC ends in
an error at some more."""


class InvalidAudio(ValueError):
    """It cannot be used; the text says why, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Voice:
    """`frames`: `floor(seconds * 25)`."""

    samples: Samples
    frames: int
    seconds: float


def heard(path: Path, folder: Path, limits: Limits = DEFAULT) -> Voice:
    """Reads the file; what it makes lies in `folder`. Raises InvalidAudio."""
    raw = folder / "voice.f32"
    if gone := wholeness.missing(path):
        raise InvalidAudio(f"{gone}: it was cut off")
    try:
        with opened(path) as given, raw.open("wb") as out:
            said = _said(given) if wholeness.held_to_its_length(path) else 0.0
            length, rate, loudness = _decoded(given, out, limits)
    except (av.error.FFmpegError, ValueError) as error:
        if isinstance(error, InvalidAudio):
            raise
        raise InvalidAudio(
            f"it is no wav, mp3, flac, ogg or m4a that can be read ({_words(error)})"
        ) from error
    length = _without_padding(length, rate, said)
    seconds = length / rate
    if length > limits.audio_most_s * rate:
        raise _too_long(limits)
    if seconds < limits.audio_least_s:
        raise InvalidAudio(f"it has {seconds:.2f} s; it must have {_allowed(limits)}")
    frames = video_frames(length, rate)
    return Voice(_samples(raw, loudness), frames, seconds)


def opened(path: Path) -> av.container.InputContainer:
    """A file of a caller. Raises what PyAV raises, but not for a title that is no UTF-8."""
    return av.open(str(path), options=dict(OPTIONS), metadata_errors="replace")


def sounding(given: Any, stream: Any) -> Iterator[Any]:
    """The frames of a track, and silence where its time stamps leave some out: what is said afterwards
    stays at its time. Of the formats that are taken, only MP4 has stamps of its own; in any other, what is
    left out is missing. A sound that begins later than 0 has an empty edit before it; in fragments, which the
    index does not count, the stamps may be those of a broadcast, and begin anywhere."""
    stamped, end = "mp4" in given.format.name, 0 if stream.frames else None
    for frame in _frames(given, stream):
        if stamped and frame.pts is not None:
            start = round(frame.pts * frame.time_base * frame.sample_rate)
            if end is not None and start - end > GAP * frame.sample_rate:
                yield from _silence(frame, start - end)
            end = start + frame.samples
        yield frame


def _frames(given: Any, stream: Any) -> Iterator[Any]:
    """As players do, what is no frame between the frames of an MP3 is left out: tags, where one file was put
    behind another."""
    begun = False
    for packet in _packets(given, stream):
        try:
            yield from packet.decode()
        except av.error.InvalidDataError:
            if not begun or given.format.name != "mp3":
                raise
        begun = True


def _packets(given: Any, stream: Any) -> Iterator[Any]:
    """Small ones of bare samples are put together where they follow each other: a MOV may have one for each
    sample, and to hear these one by one takes longer than they were said in."""
    if not stream.codec_context.name.startswith("pcm_"):
        yield from given.demux(stream)
        return
    first, data, end = None, bytearray(), None
    for packet in given.demux(stream):
        alone = not 0 < packet.size < PACKET
        if first is not None and (alone or packet.pts != end or len(data) >= PACKET):
            yield _joined(first, data)
            first, data = None, bytearray()
        if alone:
            yield packet
            continue
        first = packet if first is None else first
        data += bytes(packet)
        end = None if packet.pts is None else packet.pts + packet.duration


def _joined(first: Any, data: bytearray) -> Any:
    made: Any = av.Packet(bytes(data))
    made.pts, made.dts, made.time_base, made.stream = first.pts, first.dts, first.time_base, first.stream
    return made


def _silence(like: Any, samples: int) -> Iterator[Any]:
    """A second at a time: a file may claim to say nothing for a year."""
    while samples > 0:
        frame = av.AudioFrame(like.format.name, like.layout.name, min(samples, like.sample_rate))
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        frame.sample_rate = like.sample_rate
        samples -= frame.samples
        yield frame


def _said(given: Any) -> float:
    """Seconds of the sound, 0 for unknown: those of the file are its pictures', where it is a film."""
    return float(sum((stream.duration or 0) * stream.time_base for stream in given.streams.audio[:1]))


def _decoded(given: Any, out: Any, limits: Limits) -> tuple[int, int, float]:
    """Writes it as 16 kHz mono floats. Its length in its own samples, their rate, and its loudness."""
    if not given.streams.audio:
        raise InvalidAudio("there is no sound in it")
    stream = given.streams.audio[0]
    resampler, meter = av.AudioResampler(format="flt", layout="mono", rate=RATE), _Meter()
    length, rate = 0, 0
    for frame in sounding(given, stream):
        rate = rate or frame.sample_rate
        length += frame.samples
        if length > limits.audio_most_s * rate + SLACK:
            raise _too_long(limits)
        frame.pts = None
        for part in resampler.resample(frame):
            out.write(meter.hear(part))
    for part in resampler.resample(None):
        out.write(meter.hear(part))
    if not out.tell():
        raise InvalidAudio("there is no sound in it")
    return length, rate, meter.loudness


def _too_long(limits: Limits) -> InvalidAudio:
    return InvalidAudio(f"it has more than {limits.audio_most_s:g} s; it must have {_allowed(limits)}")


def _without_padding(length: int, rate: int, said: float) -> int:
    """In samples. `said` is the length in seconds that the file gives, 0 for none."""
    if not said:
        return length
    if round(said * rate) - length > SLACK:
        raise InvalidAudio(f"it ends after {length / rate:.2f} s of {said:.2f}: it was cut off")
    return min(length, round(said * rate)) if length - round(said * rate) <= SLACK else length


class _Meter:
    """Integrated loudness by FFmpeg's ebur128."""

    def __init__(self) -> None:
        self._graph = av.filter.Graph()
        source = self._graph.add_abuffer(format="flt", sample_rate=RATE, layout="mono")
        meter, sink = self._graph.add("ebur128", "metadata=1"), self._graph.add("abuffersink")
        source.link_to(meter)
        meter.link_to(sink)
        self._graph.configure()
        self._heard = 0
        self.loudness = -math.inf

    def hear(self, part: av.AudioFrame) -> bytes:
        """Measures the samples of a frame, and gives them back as bytes."""
        samples = part.to_ndarray()
        frame = av.AudioFrame.from_ndarray(samples, format="flt", layout="mono")
        frame.sample_rate, frame.pts = RATE, self._heard
        self._heard += samples.shape[1]
        self._graph.push(frame)
        for measured in self._measured():
            if "lavfi.r128.I" in measured.metadata:
                self.loudness = float(measured.metadata["lavfi.r128.I"])
        return samples.tobytes()

    def _measured(self) -> Iterator[Any]:
        with contextlib.suppress(av.error.BlockingIOError, av.error.EOFError):
            while True:
                yield self._graph.pull()


def _samples(raw: Path, loudness: float) -> Samples:
    """Scaled in place, block by block. Mean and deviation are rounded: what is said late in a long file must
    not move the last bit of what is heard early."""
    gain = np.float32(10 ** (round(LOUDNESS - loudness, 1) / 20) if loudness > SILENCE else 1.0)
    total = squares = 0.0
    with raw.open("r+b") as file:
        while data := file.read(BLOCK):
            block = _plausible(np.frombuffer(data, np.float32)) * gain
            total += float(block.sum(dtype=np.float64))
            squares += float(np.square(block, dtype=np.float64).sum())
            file.seek(-len(data), os.SEEK_CUR)
            file.write(block.tobytes())
    values: NDArray[np.float32] = np.memmap(raw, np.float32, "r")
    mean = total / len(values)
    deviation = math.sqrt(max(squares / len(values) - mean * mean, 0.0))
    return Samples(values, round(mean, 4), max(float(f"{deviation:.3g}"), QUIET))


def _plausible(block: NDArray[np.float32]) -> NDArray[np.float32]:
    peak = float(np.abs(block).max())
    if not math.isfinite(peak):
        raise InvalidAudio("it holds values that are no numbers")
    if peak > LOUDEST:
        raise InvalidAudio(f"it holds values of up to {peak:.3g}; floats of sound go from -1 to 1")
    return block


def _allowed(limits: Limits) -> str:
    most = limits.audio_most_s
    return f"{limits.audio_least_s:g} s to " + (f"{most:g} s" if most < 120 else f"{most / 60:g} minutes")


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
