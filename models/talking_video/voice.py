"""The caller's sound as the encoder wants it: 16 kHz, mono, at one loudness, in a file of the job's folder.

    any file that FFmpeg reads ──decoded, bit by bit──> floats on disk ──> Voice: samples, and how many frames

Memory does not grow with the length. Loudness is brought to -23 LUFS (ITU-R BS.1770, EBU R 128) in steps of a
tenth of a decibel; silence is left alone, for making it loud would make it babble.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
from numpy.typing import NDArray

from stoker.models.talking_video.chunks import video_frames
from stoker.models.talking_video.speech import RATE, Samples

__all__ = ["InvalidAudio", "Limits", "Voice", "heard"]

LOUDNESS: Final = -23.0
SILENCE: Final = -70.0
"""LUFS: the gate of BS.1770, below which nothing is measured."""

QUIET: Final = 1e-3
"""The least deviation that is divided by: silence stays silent."""

BLOCK: Final = 1 << 18
PADDING_S: Final = 0.1
"""What an encoder may have added to fill its last packet."""

UNKNOWN_LENGTH: Final = 0xFFFF_0000
"""Above this: written by a program that could not go back to fill it in."""

MISSING_S: Final = 0.5
"""A file that is shorter than it says by more than this was cut off."""


class InvalidAudio(ValueError):
    """It cannot be used; the text says why, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds."""

    least_s: float = 0.2
    most_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Voice:
    """`frames`: `floor(seconds * 25)`."""

    samples: Samples
    frames: int
    seconds: float


def heard(path: Path, folder: Path, limits: Limits = Limits()) -> Voice:
    """Reads the file; what it makes lies in `folder`. Raises InvalidAudio."""
    raw = folder / "voice.f32"
    _check_wave(path)
    try:
        with av.open(str(path)) as given, raw.open("wb") as out:
            length, rate, loudness = _decoded(given, out, limits)
    except (av.error.FFmpegError, ValueError) as error:
        if isinstance(error, InvalidAudio):
            raise
        raise InvalidAudio(f"it is no sound that can be read ({_words(error)})") from error
    seconds = length / rate
    if seconds < limits.least_s:
        raise InvalidAudio(f"it has {seconds:.2f} s; it must have {_allowed(limits)}")
    frames = video_frames(length, rate)
    return Voice(_samples(raw, loudness), frames, seconds)


def _decoded(given: Any, out: Any, limits: Limits) -> tuple[int, int, float]:
    """Writes it as 16 kHz mono floats. Its length in its own samples, their rate, and its loudness."""
    if not given.streams.audio:
        raise InvalidAudio("there is no sound in it")
    stream = given.streams.audio[0]
    resampler, meter = av.AudioResampler(format="flt", layout="mono", rate=RATE), _Meter()
    length, rate = 0, 0
    for frame in given.decode(stream):
        rate = rate or frame.sample_rate
        length += frame.samples
        if length > limits.most_s * rate:
            raise InvalidAudio(f"it has more than {limits.most_s:g} s; it must have {_allowed(limits)}")
        frame.pts = None
        for part in resampler.resample(frame):
            out.write(meter.hear(part))
    for part in resampler.resample(None):
        out.write(meter.hear(part))
    if not length:
        raise InvalidAudio("there is no sound in it")
    said = float(given.duration or 0) / av.time_base
    if said - length / rate > MISSING_S:
        raise InvalidAudio(f"it ends after {length / rate:.2f} s of {said:.2f}: it was cut off")
    if said and length / rate - said < PADDING_S:
        length = min(length, round(said * rate))
    return length, rate, meter.loudness


def _check_wave(path: Path) -> None:
    """FFmpeg takes a wave file's word for its length only where the file is as long."""
    with path.open("rb") as file:
        head = file.read(4096)
    place = head.find(b"data")
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE" or place < 0:
        return
    said, there = int.from_bytes(head[place + 4 : place + 8], "little"), path.stat().st_size - place - 8
    if there < said < UNKNOWN_LENGTH:
        raise InvalidAudio(f"it holds {there} of {said} bytes of sound: it was cut off")


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
    values: NDArray[np.float32] = np.memmap(raw, np.float32, "r+")
    gain = 10 ** (round(LOUDNESS - loudness, 1) / 20) if loudness > SILENCE else 1.0
    total = squares = 0.0
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        block *= np.float32(gain)
        total += float(block.sum(dtype=np.float64))
        squares += float(np.square(block, dtype=np.float64).sum())
    mean = total / len(values)
    deviation = math.sqrt(max(squares / len(values) - mean * mean, 0.0))
    return Samples(values, round(mean, 4), max(float(f"{deviation:.3g}"), QUIET))


def _allowed(limits: Limits) -> str:
    return f"{limits.least_s:g} s to {limits.most_s / 60:g} minutes"


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
