"""The caller's audio, converted for the speech encoder: 16 kHz, mono, at one loudness, in the job's folder.

    a recording ──decoded frame by frame──> floats on disk ──> NormalizedAudio

Memory does not grow with the length. Loudness is set to -23 LUFS (ITU-R BS.1770, EBU R 128) in steps of a
tenth of a decibel. Silence is not amplified, since that would make its noise loud.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
import soundfile
from numpy.typing import NDArray

from stoker.models.talking_video.audio import truncation
from stoker.models.talking_video.audio.recording import Recording, recorded, resampled
from stoker.models.talking_video.audio.speech import RATE, Samples
from stoker.models.talking_video.limits import DEFAULT, VideoLimits
from stoker.models.talking_video.sampling.chunks import video_frames
from stoker.worker.payloads import media_types

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

KINDS: Final = "wav, mp3, flac, ogg, m4a, aac, aiff, webm or mkv"
MEDIA_TYPES: Final = frozenset(
    {
        *("audio/wav", "audio/mpeg", "audio/flac", "audio/ogg", "audio/mp4", "audio/aac", "audio/aiff"),
        *("video/webm", "video/x-matroska", "video/mp4", "video/quicktime", "video/3gpp"),
    }
)
"""What is read, for callers and by its first bytes."""

LOUDEST: Final = 100.0
"""The largest value, where 1 is full scale. A file of 16-bit integers written as floats is refused; AAC fails
at a little more than this."""


class InvalidAudio(ValueError):
    """The audio cannot be used; the message says why, and what is allowed."""


@dataclass(frozen=True, slots=True)
class NormalizedAudio:
    """The normalized audio of a video. `frames`: `floor(seconds * 25)`."""

    samples: Samples
    frames: int
    seconds: float


def normalized(path: Path, folder: Path, limits: VideoLimits = DEFAULT) -> NormalizedAudio:
    """Reads the file, and writes the samples into `folder`. Raises InvalidAudio."""
    raw, sign = folder / "audio.f32", truncation.sign(path)
    try:
        with contextlib.closing(recorded(path)) as recording, raw.open("wb") as out:
            heard = _decoded(recording, out, limits)
            declared, damaged = round(recording.seconds * heard.rate), recording.damaged
    except (av.error.FFmpegError, soundfile.LibsndfileError, ValueError) as error:
        if isinstance(error, InvalidAudio):
            raise
        raise _unreadable(path, sign, error) from error
    early = declared - heard.length > SLACK
    if sign and (sign.certain or damaged or early or not heard.length):
        raise InvalidAudio(f"{sign.text}: it was cut off")
    if not raw.stat().st_size:
        raise InvalidAudio("there is no sound in it")
    length = heard.length
    if truncation.has_reliable_length(path):
        length = _without_padding(length, heard.rate, declared)
    seconds = length / heard.rate
    if length > limits.audio_most_s * heard.rate:
        raise _too_long(limits)
    if seconds < limits.audio_least_s:
        raise InvalidAudio(f"it has {seconds:.2f} s; it must have {_allowed(limits)}")
    frames = video_frames(length, heard.rate)
    return NormalizedAudio(_samples(raw, heard.loudness), frames, seconds)


def _unreadable(path: Path, sign: truncation.Sign | None, error: Exception) -> InvalidAudio:
    with path.open("rb") as file:
        came = media_types.media_type_of_bytes(file.read(media_types.HEAD))
    if came is not None and came not in MEDIA_TYPES:
        return InvalidAudio(f"it is {came}; it must be {KINDS}")
    if sign:
        return InvalidAudio(f"{sign.text}: it was cut off")
    reason = getattr(error, "strerror", None) or error
    return InvalidAudio(f"it is not a readable {KINDS} file ({reason})")


@dataclass(frozen=True, slots=True)
class _Heard:
    """The length in samples at `rate`, that of the first segment."""

    length: int
    rate: int
    loudness: float


def _decoded(recording: Recording, out: Any, limits: VideoLimits) -> _Heard:
    """Writes the recording as 16 kHz mono floats."""
    played, meter = Counter[int](), _Meter()
    for part in resampled(_counted(recording.frames(), played, limits), "flt", "mono", RATE):
        out.write(meter.measure(part))
    rate = next(iter(played), RATE)
    length = sum(samples * rate // each for each, samples in played.items())
    return _Heard(length, rate, meter.loudness)


def _counted(frames: Iterator[Any], played: Counter[int], limits: VideoLimits) -> Iterator[Any]:
    """Yields the frames, whose samples are added to those of their rate. Raises InvalidAudio if there are too
    many."""
    seconds = 0.0
    for frame in frames:
        rate = frame.sample_rate
        if rate > HIGHEST_RATE:
            raise InvalidAudio(f"it has {rate} samples a second; at most {HIGHEST_RATE} are allowed")
        played[rate] += frame.samples
        seconds += frame.samples / rate
        if seconds > limits.audio_most_s + SLACK / rate:
            raise _too_long(limits)
        yield frame


def _too_long(limits: VideoLimits) -> InvalidAudio:
    return InvalidAudio(f"it has more than {limits.audio_most_s:g} s; it must have {_allowed(limits)}")


def _without_padding(length: int, rate: int, declared: int) -> int:
    """Returns the length in samples. `declared` is the length that the file declares, 0 for none."""
    if not declared:
        return length
    if declared - length > SLACK:
        raise InvalidAudio(f"it ends after {length / rate:.2f} s of {declared / rate:.2f}: it was cut off")
    return min(length, declared) if length - declared <= SLACK else length


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
