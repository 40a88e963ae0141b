"""Opens a caller's audio file with the library that reads it best, and decodes it a frame at a time.

    wav, flac              libsndfile, by soundfile: it has no packets, and checks the checksums of FLAC
    ogg, mp3, m4a, mov     FFmpeg, by PyAV; and any WAV or FLAC that libsndfile does not accept

libsndfile knows Ogg and MP3, too, but FFmpeg reads them: of two Ogg files in one libsndfile reads only the
first, it fills in what is lost between two pages, and it fails at a tag between two MP3s. FFmpeg also reads
files of more than two channels, since it knows the position of each loudspeaker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import av
import numpy as np
import soundfile

OPTIONS: Final = {"format_whitelist": "wav,mp3,flac,ogg,mov", "protocol_whitelist": "file"}
"""Without these FFmpeg also reads playlists, which name other files and addresses."""

GAP: Final = 0.1
"""Seconds. A shorter gap between time stamps comes from rounding."""

PACKET: Final = 1 << 12
"""Bytes."""

BLOCK: Final = 1 << 15
"""Samples that libsndfile reads at a time."""

UNKNOWN: Final = 1 << 60
"""A FLAC file with this many samples or more was written to a pipe; libsndfile opens it but cannot read
it."""

LAYOUTS: Final = {1: "mono", 2: "stereo"}

READ_BY_LIBSNDFILE: Final = {
    "WAV": {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"},
    "WAVEX": {"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"},
    "FLAC": {"PCM_S8", "PCM_16", "PCM_24"},
}
"""The formats that libsndfile reads here, by its own names. It knows thirty, most of them little tested."""


class Recording(Protocol):
    """`rate` and `channels` are 0 if there is no sound; `seconds` is the declared length, 0 if none is
    declared."""

    rate: int
    channels: int
    seconds: float

    def frames(self) -> Iterator[Any]:
        """The sound as frames of PyAV. Raises the libraries' exceptions."""

    def close(self) -> None: ...


def recorded(path: Path) -> Recording:
    """Raises PyAV's exceptions if neither library can read the file."""
    return _by_libsndfile(path) or _FFmpegRecording(path)


def _by_libsndfile(path: Path) -> Recording | None:
    """None if FFmpeg shall read the file, or raise an error that says why it cannot be read."""
    with path.open("rb") as file:
        head = file.read(12)
    if head[:4] != b"fLaC" and (head[:4] != b"RIFF" or head[8:12] != b"WAVE"):
        return None
    try:
        file = soundfile.SoundFile(path)
    except soundfile.LibsndfileError:
        return None
    accepted = file.subtype in READ_BY_LIBSNDFILE.get(file.format, ()) and file.channels in LAYOUTS
    if accepted and 0 < file.frames < UNKNOWN:
        return _LibsndfileRecording(file)
    file.close()
    return None


class _LibsndfileRecording:
    """A file that holds nothing but samples."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.rate, self.channels = file.samplerate, file.channels
        self.seconds = file.frames / file.samplerate

    def frames(self) -> Iterator[Any]:
        while len(block := self._file.read(BLOCK, dtype="float32", always_2d=True)):
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(block).reshape(1, -1), format="flt", layout=LAYOUTS[self.channels]
            )
            frame.sample_rate = self.rate
            yield frame

    def close(self) -> None:
        self._file.close()


class _FFmpegRecording:
    """The first audio track of a file that FFmpeg reads."""

    def __init__(self, path: Path) -> None:
        self._file = opened(path)
        self._tracks: list[Any] = list(self._file.streams.audio[:1])
        self.rate, self.channels, self.seconds = 0, 0, 0.0
        for track in self._tracks:
            self.rate, self.channels = track.rate or 0, track.codec_context.channels
            # The track's length: that of a video file may be the length of its images.
            self.seconds = float((track.duration or 0) * track.time_base)

    def frames(self) -> Iterator[Any]:
        for track in self._tracks:
            yield from sounding(self._file, track)

    def close(self) -> None:
        self._file.close()


def opened(path: Path) -> av.container.InputContainer:
    """Opens a caller's file. Raises PyAV's exceptions, but accepts a title that is not UTF-8."""
    return av.open(str(path), options=dict(OPTIONS), metadata_errors="replace")


def sounding(container: Any, stream: Any) -> Iterator[Any]:
    """The frames of a track, with silence in the gaps of its time stamps, so that later sound stays at its
    time.

    Of the accepted formats only MP4 has time stamps of its own; in the others a gap means that data is
    missing. Sound that begins later than 0 has an empty edit before it. In fragments, which the index does
    not count, the time stamps may be those of a broadcast and begin anywhere.
    """
    stamped, end = "mp4" in container.format.name, 0 if stream.frames else None
    for frame in _frames(container, stream):
        if stamped and frame.pts is not None:
            start = round(frame.pts * frame.time_base * frame.sample_rate)
            if end is not None and start - end > GAP * frame.sample_rate:
                yield from _silence(frame, start - end)
            end = start + frame.samples
        yield frame


def _frames(container: Any, stream: Any) -> Iterator[Any]:
    """Skips tags between the frames of an MP3, as players do: they are there if one file was appended to
    another."""
    begun = False
    for packet in _packets(container, stream):
        try:
            yield from packet.decode()
        except av.error.InvalidDataError:
            if not begun or container.format.name != "mp3":
                raise
        begun = True


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    """Joins small consecutive packets of PCM samples: a MOV may have one for each sample, and decoding these
    one by one takes longer than playing them."""
    if not stream.codec_context.name.startswith("pcm_"):
        yield from container.demux(stream)
        return
    first, data, end = None, bytearray(), None
    for packet in container.demux(stream):
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
    joined: Any = av.Packet(bytes(data))
    joined.pts, joined.dts, joined.time_base, joined.stream = (
        first.pts,
        first.dts,
        first.time_base,
        first.stream,
    )
    return joined


def _silence(like: Any, samples: int) -> Iterator[Any]:
    """Silence, a second at a time: a file may declare a year of it."""
    while samples > 0:
        frame = av.AudioFrame(like.format.name, like.layout.name, min(samples, like.sample_rate))
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        frame.sample_rate = like.sample_rate
        samples -= frame.samples
        yield frame
