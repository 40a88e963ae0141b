"""Sounds and pictures for tests, made when they are needed: small, and the same on every machine."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

FORMATS = {
    "wav": ("wav", "pcm_s16le", "s16"),
    "mp3": ("mp3", "libmp3lame", "fltp"),
    "flac": ("flac", "flac", "s16"),
    "ogg": ("ogg", "libopus", "flt"),
    "m4a": ("ipod", "aac", "fltp"),
    "aac": ("adts", "aac", "fltp"),
    "aiff": ("aiff", "pcm_s16be", "s16"),
    "webm": ("webm", "libopus", "flt"),
    "mkv": ("matroska", "aac", "fltp"),
}
"""By ending: the muxer, the encoder, and its samples."""

MOV = {"mov": ("mov", "pcm_s16le", "s16")}

Sound = NDArray[np.float32]


def tone(samples: int, rate: int, hz: float = 220.0, gain: float = 0.3) -> Sound:
    """(1, samples)."""
    angles = np.arange(samples) * (2 * np.pi * hz / rate)
    return np.asarray(gain * np.sin(angles)[None], np.float32)


def clicks(samples: int, rate: int, every_s: float = 0.25) -> Sound:
    """(1, samples): a short burst of noise, again and again, never twice the same."""
    rng, sound = np.random.default_rng(0), np.zeros((1, samples), np.float32)
    for start in range(rate // 10, samples - rate // 100, round(every_s * rate)):
        sound[0, start : start + rate // 100] = rng.uniform(-0.7, 0.7, rate // 100)
    return sound


def write_sound(path: Path, sound: Sound, rate: int, kind: str = "", bit_rate: int = 0, **muxer: str) -> Path:
    """(channels, samples) from -1 to 1 as a file; `kind` is the ending's, unless it is given."""
    container, codec, form = (FORMATS | MOV)[kind or path.suffix[1:]]
    with av.open(str(path), "w", format=container, options=muxer) as out:
        stream: Any = out.add_stream(codec, rate=rate, options={"b": str(bit_rate)} if bit_rate else {})
        stream.layout = "mono" if len(sound) == 1 else "stereo"
        out.mux(stream.encode(_frame(sound, rate, form, stream.layout.name)))
        out.mux(stream.encode(None))
    return path


def _frame(sound: Sound, rate: int, form: str, layout: str) -> Any:
    if form == "fltp":
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound), format=form, layout=layout)
    else:
        packed = np.ascontiguousarray(sound.T).reshape(1, -1)
        values = packed if form == "flt" else (packed * 32767).round().astype(np.int16)
        frame = av.AudioFrame.from_ndarray(values, format=form, layout=layout)
    frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
    return frame


def with_gap(source: Path, target: Path, after: int, samples: int, **muxer: str) -> Path:
    """The same packets; from a time on, in samples of the track, so much later. The encoder's own silence
    stands before 0."""
    with av.open(str(source)) as opened, av.open(str(target), "w", options=muxer) as out:
        track = out.add_stream_from_template(opened.streams[0])
        for packet in opened.demux(0):
            if packet.pts is None or packet.dts is None:
                continue
            late = samples if packet.pts >= after else 0
            packet.pts, packet.dts, packet.stream = packet.pts + late, packet.dts + late, track
            out.mux(packet)
    return target


def with_lengths(source: Path, target: Path, *lengths: tuple[int, int]) -> Path:
    """The same MOV, whose index tells other lengths of its samples, (how many, how long) in turns, and no
    edits. Where they are not all alike, each comes as a packet of its own."""
    table = struct.pack(">II", 0, len(lengths)) + b"".join(struct.pack(">II", *each) for each in lengths)

    def rewritten(data: bytes) -> bytes:
        made = b""
        while data:
            size, kind = struct.unpack(">I4s", data[:8])
            body, data = data[8:size], data[size:]
            if kind == b"edts":
                continue
            if kind in (b"moov", b"trak", b"mdia", b"minf", b"stbl"):
                body = rewritten(body)
            body = table if kind == b"stts" else body
            made += struct.pack(">I4s", 8 + len(body), kind) + body
        return made

    target.write_bytes(rewritten(source.read_bytes()))
    return target


def read_sound(path: Any) -> tuple[Sound, int]:
    """(channels, samples) and the rate: the first sound track of a file."""
    parts = []
    with av.open(path if not isinstance(path, Path) else str(path)) as opened:
        resampler = av.AudioResampler(format="fltp")
        for frame in opened.decode(audio=0):
            rate = frame.sample_rate
            frame.pts = None
            parts += [part.to_ndarray() for part in resampler.resample(frame)]
        parts += [part.to_ndarray() for part in resampler.resample(None)]
    return np.concatenate(parts, axis=1), rate


def lag(decoded: NDArray[np.float32], original: NDArray[np.float32]) -> int:
    """By how many samples what is heard comes later than what was said; both (n,)."""
    size = len(decoded) + len(original)
    likeness = np.fft.irfft(np.fft.rfft(decoded, size) * np.fft.rfft(original, size).conj(), size)
    found = int(likeness.argmax())
    return found if found < len(decoded) else found - size


def loudness(path_or_samples: Any, rate: int) -> float:
    """Integrated, in LUFS, by FFmpeg's meter; of samples (n,) or (1, n)."""
    samples = np.ascontiguousarray(np.asarray(path_or_samples, np.float32).reshape(1, -1))
    graph = av.filter.Graph()
    source = graph.add_abuffer(format="flt", sample_rate=rate, layout="mono")
    meter, sink = graph.add("ebur128", "metadata=1"), graph.add("abuffersink")
    source.link_to(meter)
    meter.link_to(sink)
    graph.configure()
    found = float("nan")
    for start in range(0, samples.shape[1], rate // 10):
        frame = av.AudioFrame.from_ndarray(
            samples[:, start : start + rate // 10], format="flt", layout="mono"
        )
        frame.sample_rate, frame.pts = rate, start
        graph.push(frame)
        while True:
            try:
                found = float(graph.pull().metadata["lavfi.r128.I"])
            except (av.error.BlockingIOError, av.error.EOFError):
                break
            except KeyError:
                continue
    return found


def video_file_without_sound(path: Path, frames: int = 5) -> Path:
    with av.open(str(path), "w", format="mp4") as out:
        stream: Any = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for number in range(frames):
            pixels = np.full((64, 64, 3), 10 * number % 256, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode(None))
    return path
