"""A caller's audio file, opened with the library that reads it best, and decoded a frame at a time.

    wav, flac      libsndfile, by soundfile: it has no packets, and checks the checksums of FLAC
    all others     FFmpeg, by PyAV; and any WAV or FLAC that libsndfile does not accept

libsndfile knows Ogg and MP3, too, but FFmpeg reads them: of two Ogg files in one libsndfile reads only the
first, it fills in what is lost between two pages, and it fails at a tag between two MP3s. FFmpeg also reads
files of more than two channels, since it knows the position of each loudspeaker. It reads no Ogg whose
channels change from one link of the chain to the next: each link is opened alone.

Where channels or rate change, in MP3s put one behind the other or in such a chain, a segment ends, and
`resampled` makes one form of all of them."""

from __future__ import annotations

import io
import itertools
import mmap
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Protocol

import av
import numpy as np
import soundfile

from stoker.models.talking_video.audio import ogg

OPTIONS: Final = {
    "format_whitelist": "wav,mp3,flac,ogg,mov,matroska,webm,aac,aiff",
    "protocol_whitelist": "file",
}
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


STREAMED: Final = ("mp3", "aac")
"""Formats of frames one behind the other, with tags between them where files were put together."""


SEGMENTS: Final = 1000
"""The most segments. Each has a resampler, whose filter takes milliseconds to make."""


class Recording(Protocol):
    """A caller's audio file. `rate` and `channels` are 0 if there is no sound; `seconds` is the declared
    length, 0 if none is declared; `damaged` becomes true where a part is found that cannot be decoded."""

    rate: int
    channels: int
    seconds: float
    damaged: bool

    def frames(self) -> Iterator[Any]:
        """Yields the sound as frames of PyAV. Raises the libraries' exceptions."""

    def close(self) -> None: ...


def recorded(path: Path) -> Recording:
    """Raises PyAV's exceptions if neither library can read the file."""
    return _by_libsndfile(path) or _chained(path) or _FFmpegRecording(path)


def _by_libsndfile(path: Path) -> Recording | None:
    """Returns the recording; None if FFmpeg shall read the file, or raise an error that says why the file
    cannot be read."""
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

    damaged = False

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

    def __init__(self, source: Path | io.RawIOBase) -> None:
        self._file, self.damaged = opened(source), False
        self._tracks: list[Any] = list(self._file.streams.audio[:1])
        self.rate, self.channels, self.seconds = 0, 0, 0.0
        for track in self._tracks:
            self.rate, self.channels = track.rate or 0, track.codec_context.channels
            # The track's length: that of a video file may be the length of its images.
            self.seconds = float((track.duration or 0) * track.time_base)
        if self._file.format.name.startswith("matroska"):  # its tracks declare none
            self.seconds = (self._file.duration or 0) / av.time_base

    def frames(self) -> Iterator[Any]:
        for track in self._tracks:
            yield from sounding(self._file, track, self._damage)

    def _damage(self) -> None:
        self.damaged = True

    def close(self) -> None:
        self._file.close()


def _chained(path: Path) -> Recording | None:
    """Returns the recording; None if the file is not a chain of Ogg files."""
    with path.open("rb") as file:
        if file.read(4) != b"OggS":
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            links = ogg.links(data)
    return _Chain(path, links) if len(links) > 1 else None


class _Chain:
    """A chain of Ogg files, one behind the other. A length is not declared by any of them for all."""

    def __init__(self, path: Path, links: list[tuple[int, int]]) -> None:
        self._path, self._links, self.seconds, self.damaged = path, links, 0.0, False
        first = self._link(*links[0])
        self.rate, self.channels = first.rate, first.channels
        first.close()

    def _link(self, start: int, end: int) -> _FFmpegRecording:
        return _FFmpegRecording(_Part(self._path, start, end))

    def frames(self) -> Iterator[Any]:
        for start, end in self._links:
            link = self._link(start, end)
            try:
                yield from link.frames()
            finally:
                link.close()
                self.damaged |= link.damaged

    def close(self) -> None: ...


class _Part(io.RawIOBase):
    """The bytes of a file from `start` to `end`, as a file of their own."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        super().__init__()
        self._file, self._start, self._end = path.open("rb"), start, end
        self._file.seek(start)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), max(0, self._end - self._file.tell())))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (self._start, self._file.tell(), self._end)[whence]
        return self._file.seek(max(self._start, base + offset)) - self._start

    def close(self) -> None:
        self._file.close()
        super().close()


def opened(source: Path | io.RawIOBase) -> av.container.InputContainer:
    """Opens a caller's file. Raises PyAV's exceptions, but accepts a title that is not UTF-8."""
    file: Any = str(source) if isinstance(source, Path) else source
    container: av.container.InputContainer = av.open(file, options=dict(OPTIONS), metadata_errors="replace")
    return container


def resampled(frames: Iterable[Any], form: str, layout: str, rate: int) -> Iterator[Any]:
    """Yields the sound of the frames in one form. Each segment has a resampler of its own, since a resampler
    takes frames of a single form. Raises ValueError if there are too many segments."""
    for number, segment in enumerate(_segments(frames)):
        if number == SEGMENTS:
            raise ValueError(f"its channels or rate change {SEGMENTS} times")
        resampler = av.AudioResampler(format=form, layout=layout, rate=rate)
        for frame in itertools.chain(segment, [None]):
            if frame is not None:
                frame.pts = None
            for part in resampler.resample(frame):
                part.pts, part.time_base = None, Fraction(1, rate)
                yield part


def _segments(frames: Iterable[Any]) -> Iterator[Iterable[Any]]:
    groups = itertools.groupby(frames, lambda each: (each.format.name, each.layout.name, each.sample_rate))
    return (segment for _, segment in groups)


def sounding(container: Any, stream: Any, on_damage: Callable[[], None] = lambda: None) -> Iterator[Any]:
    """Yields the frames of a track, with silence in the gaps of its time stamps, so that later sound stays at
    its time. `on_damage` is called for what cannot be decoded.

    Of the accepted formats only MP4 and Matroska have time stamps of their own; in the others a gap means
    that data is missing. Sound of an MP4 that begins later than 0 has an empty edit before it. In fragments,
    which the index does not count, the time stamps may be those of a broadcast and begin anywhere; so may
    those of a Matroska, whose tracks have a beginning in common.
    """
    end = _beginning(container, stream)
    stamped = "mp4" in container.format.name or "matroska" in container.format.name
    for frame in _frames(container, stream, on_damage):
        if stamped and frame.pts is not None:
            start = frame.pts * frame.time_base
            if end is not None and start - end > GAP:
                yield from _silence(frame, round((start - end) * frame.sample_rate))
            end = start + Fraction(frame.samples, frame.sample_rate)
        yield frame


def _beginning(container: Any, stream: Any) -> Fraction | None:
    """Returns the time in seconds from which on silence is left out; None if that is the track's own first
    time."""
    if "matroska" in container.format.name:
        return Fraction(container.start_time or 0, av.time_base)
    return Fraction(0) if stream.frames else None


def _frames(container: Any, stream: Any, on_damage: Callable[[], None]) -> Iterator[Any]:
    """Skips tags between the frames of an MP3 or AAC, as players do: they are there if one file was appended
    to another."""
    begun = False
    for packet in _packets(container, stream, on_damage):
        try:
            yield from packet.decode()
        except av.error.InvalidDataError:
            if not begun or container.format.name not in STREAMED:
                raise
            on_damage()
        begun = True


def _packets(container: Any, stream: Any, on_damage: Callable[[], None]) -> Iterator[Any]:
    """Joins small consecutive packets of PCM samples: a MOV may have one for each sample, and decoding these
    one by one takes longer than playing them."""
    if not stream.codec_context.name.startswith("pcm_"):
        yield from _demuxed(container, stream, on_damage)
        return
    first, data, end = None, bytearray(), None
    for packet in _demuxed(container, stream, on_damage):
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


def _demuxed(container: Any, stream: Any, on_damage: Callable[[], None]) -> Iterator[Any]:
    """Ends where an AAC file ends within the header of a frame, which FFmpeg takes for an error."""
    try:
        for packet in container.demux(stream):
            if packet.is_corrupt:  # the file ends within it
                on_damage()
            yield packet
    except av.error.InvalidDataError:
        if container.format.name not in STREAMED:
            raise
        on_damage()


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
    """Yields silence, a second at a time: a file may declare a year of it."""
    while samples > 0:
        frame = av.AudioFrame(like.format.name, like.layout.name, min(samples, like.sample_rate))
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        frame.sample_rate = like.sample_rate
        samples -= frame.samples
        yield frame
