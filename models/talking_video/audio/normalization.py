"""Converts the caller's audio for the speech encoder: 16 kHz, mono, at one loudness, in the job's folder.

    a recording ──decoded frame by frame──> floats on disk ──> NormalizedAudio

Memory does not grow with the length. Loudness is set to -23 LUFS (ITU-R BS.1770, EBU R 128) in steps of a
tenth of a decibel. Silence is not amplified, since that would make its noise loud.
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
import soundfile
from numpy.typing import NDArray

from stoker.models.talking_video.audio import truncation
from stoker.models.talking_video.audio.recording import Recording, recorded
from stoker.models.talking_video.audio.speech import RATE, Samples
from stoker.models.talking_video.limits import DEFAULT, VideoLimits
from stoker.models.talking_video.sampling.chunks import video_frames

LOUDNESS: Final = -23.0
SILENCE: Final = -70.0
"""LUFS: the gate of BS.1770. Sound below it is not measured."""

QUIET: Final = 1e-3
"""The smallest deviation to divide by, so that silence stays silent."""

BLOCK: Final = 1 << 20
"""Bytes."""

HIGHEST_RATE: Final = 768_000
"""Samples a second, sixteen times 48,000. The length of the resampling filter grows with the rate:
at some hundred million it takes gigabytes and half a minute."""

SLACK: Final = 2304
"""By how many samples a file may differ from the length that it declares: two packets of an MP3, one of other
formats."""

LOUDEST: Final = 100.0
"""The largest value, where 1 is full scale. A file of 16-bit integers written as floats is refused; AAC fails
at a little more than this."""


class InvalidAudio(ValueError):
    """The audio cannot be used; the message says why, and what is allowed."""


@dataclass(frozen=True, slots=True)
class NormalizedAudio:
    """`frames`: `floor(seconds * 25)`."""

    samples: Samples
    frames: int
    seconds: float


def normalized(path: Path, folder: Path, limits: VideoLimits = DEFAULT) -> NormalizedAudio:
    """Reads the file, and writes the samples into `folder`. Raises InvalidAudio."""
    raw = folder / "audio.f32"
    if missing := truncation.missing(path):
        raise InvalidAudio(f"{missing}: it was cut off")
    try:
        with contextlib.closing(recorded(path)) as recording, raw.open("wb") as out:
            declared_s = recording.seconds if truncation.has_reliable_length(path) else 0.0
            length, rate, loudness = _decoded(recording, out, limits)
    except (av.error.FFmpegError, soundfile.LibsndfileError, ValueError) as error:
        if isinstance(error, InvalidAudio):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InvalidAudio(f"it is not a readable wav, mp3, flac, ogg or m4a file ({reason})") from error
    length = _without_padding(length, rate, declared_s)
    seconds = length / rate
    if length > limits.audio_most_s * rate:
        raise _too_long(limits)
    if seconds < limits.audio_least_s:
        raise InvalidAudio(f"it has {seconds:.2f} s; it must have {_allowed(limits)}")
    frames = video_frames(length, rate)
    return NormalizedAudio(_samples(raw, loudness), frames, seconds)


def _decoded(recording: Recording, out: Any, limits: VideoLimits) -> tuple[int, int, float]:
    """Writes the recording as 16 kHz mono floats. Returns its length in samples of its own rate, that rate,
    and the loudness."""
    if not recording.rate:
        raise InvalidAudio("there is no sound in it")
    resampler, meter = av.AudioResampler(format="flt", layout="mono", rate=RATE), _Meter()
    length, rate = 0, 0
    for frame in recording.frames():
        rate = rate or frame.sample_rate
        if rate > HIGHEST_RATE:
            raise InvalidAudio(f"it has {rate} samples a second; at most {HIGHEST_RATE} are allowed")
        length += frame.samples
        if length > limits.audio_most_s * rate + SLACK:
            raise _too_long(limits)
        frame.pts = None
        for part in resampler.resample(frame):
            out.write(meter.measure(part))
    for part in resampler.resample(None):
        out.write(meter.measure(part))
    if not out.tell():
        raise InvalidAudio("there is no sound in it")
    return length, rate, meter.loudness


def _too_long(limits: VideoLimits) -> InvalidAudio:
    return InvalidAudio(f"it has more than {limits.audio_most_s:g} s; it must have {_allowed(limits)}")


def _without_padding(length: int, rate: int, declared_s: float) -> int:
    """The length in samples. `declared_s` is the length that the file declares, 0 for none."""
    if not declared_s:
        return length
    if round(declared_s * rate) - length > SLACK:
        raise InvalidAudio(f"it ends after {length / rate:.2f} s of {declared_s:.2f}: it was cut off")
    return min(length, round(declared_s * rate)) if length - round(declared_s * rate) <= SLACK else length


class _Meter:
    """Integrated loudness by FFmpeg's ebur128."""

    def __init__(self) -> None:
        self._graph = av.filter.Graph()
        source = self._graph.add_abuffer(format="flt", sample_rate=RATE, layout="mono")
        meter, sink = self._graph.add("ebur128", "metadata=1"), self._graph.add("abuffersink")
        source.link_to(meter)
        meter.link_to(sink)
        self._graph.configure()
        self._samples = 0
        self.loudness = -math.inf

    def measure(self, part: av.AudioFrame) -> bytes:
        """Measures the samples of a frame, and returns them as bytes."""
        samples = part.to_ndarray()
        frame = av.AudioFrame.from_ndarray(samples, format="flt", layout="mono")
        frame.sample_rate, frame.pts = RATE, self._samples
        self._samples += samples.shape[1]
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
    """Scales the file in place, block by block. Mean and deviation are rounded, so the end of a long file
    does not change the last bits at its beginning."""
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
        raise InvalidAudio("it holds values that are not finite numbers")
    if peak > LOUDEST:
        raise InvalidAudio(f"it holds values of up to {peak:.3g}; floats of sound go from -1 to 1")
    return block


def _allowed(limits: VideoLimits) -> str:
    most = limits.audio_most_s
    return f"{limits.audio_least_s:g} s to " + (f"{most:g} s" if most < 120 else f"{most / 60:g} minutes")
