"""What an agent and one worker process say over their socket: the whole vocabulary, and its framing.

Layout of a frame: two big-endian 32-bit lengths (header, body), a header of JSON, a body of raw JSON.
The body is the payload (an input, an output, a progress value): the agent passes it on without parsing
it. A body over `INLINE_MAX` travels in a memfd beside the header instead (measured: 16 MiB through the
socket 20-34 ms, by memfd 5 ms), and a file that the handler made as an open descriptor, never as a name.

    agent                         worker
      setup  ------------------->         once, first
             <-------------------  ready (concurrency: its slots) | setup_failed
             <-------------------  slots (n)  from now on it takes so many at once; what runs may end
      run    ------------------->         body: the input
             <-------------------  progress (body)  chunk (n, body | +descriptor)
             <-------------------  file (n, name, media_type, +descriptor)
             <-------------------  done (body?, in_file?, metrics) | failed (error, retryable)
             <-------------------  fetch (n, url, max_bytes, timeout_s)  what lies at this URL, please
     fetched ------------------->         (n, size, sha256, +descriptor), open for reading
fetch_failed ------------------->         (n, reason, error, retryable)  no answer once the job is stopped
      took   ------------------->         (n) there is room again after this large chunk
      cancel ------------------->         cooperative; the worker still answers with done or failed
      stop   ------------------->         after the running job
             <-------------------  retire (reason, lost?)  it takes nothing new and wants to be replaced;
                                   lost: so is all that it runs, but for this job, which is about to fail
             <-------------------  begun | returned (reason)  of a job that had to wait for its handler

Every frame about a job carries `job` and `attempt`. In an output, `{"$file": n}` stands for the n-th file.
This module knows bytes and descriptors only: no socket, no loop.
"""

from __future__ import annotations

import json
import os
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

HEADER_MAX = 64 * 1024
"""A header holds ids, a name and an error text; errors are cut to 32 KiB by whoever sends them."""

INLINE_MAX = 1024 * 1024
"""Above this a body goes by memfd."""

BODY_MAX = 64 * 1024 * 1024
"""More than this is refused. An output of that size travels as a file: `done` says `in_file` then; a chunk as
its own descriptor."""

PIECE_MAX = 1_000_000
"""A chunk above this is uploaded by the agent. Whoever sent one waits for its `took`: the memory that waits
for an object store would have no bound otherwise, for a memfd is no burden to a socket's buffer."""

FILE_MARK = "$file"

_header_fields = json.JSONDecoder().decode
_header_text = json.JSONEncoder(separators=(",", ":")).encode
_LENGTHS = struct.Struct(">II")


class FrameError(Exception):
    """The other side broke the protocol; the text says how. The connection is of no further use."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`kind` is one of the words above; `fields` is the rest of the header; `fd` a received descriptor.

    Whoever receives a frame with an `fd` owns it and closes it.
    """

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""
    fd: int | None = None

    @property
    def job(self) -> str:
        return str(self.fields["job"])

    @property
    def attempt(self) -> int:
        return int(self.fields["attempt"])

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number from 0 that the header must hold. Raises ValueError."""
        number = self.fields.get(name, default)
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"{name} {number!r}")
        return number

    def close(self) -> None:
        """Closes the descriptor: for an owner that does not want it."""
        if self.fd is not None:
            os.close(self.fd)


def is_large_piece(frame: Frame) -> bool:
    return frame.kind == "chunk" and (len(frame.body) > PIECE_MAX or frame.fd is not None)


def encode(frame: Frame) -> tuple[bytes, list[int]]:
    """The bytes to send and the descriptors to pass with their first byte.

    A descriptor made here for a large body is the caller's to close after sending; `frame.fd` stays the
    caller's too. Raises FrameError for a body over BODY_MAX or a header over HEADER_MAX.
    """
    header: dict[str, Any] = {"t": frame.kind, **frame.fields}
    body = frame.body
    if len(body) > BODY_MAX:
        raise FrameError(
            f"a {frame.kind} of {len(body)} bytes is over the limit of {BODY_MAX}; return a File"
        )
    if frame.fd is not None:
        header["fd"] = 1
    if len(body) > INLINE_MAX:
        header["memfd"] = len(body)
    text = _header_text(header).encode()
    if len(text) > HEADER_MAX:
        raise FrameError(f"a {frame.kind} header of {len(text)} bytes is over the limit of {HEADER_MAX}")
    fds = [] if frame.fd is None else [frame.fd]
    if len(body) > INLINE_MAX:
        fds.append(_memfd(body))
        body = b""
    return _LENGTHS.pack(len(text), len(body)) + text + body, fds


def _memfd(body: bytes) -> int:
    fd = os.memfd_create("stoker-body", os.MFD_CLOEXEC)
    try:
        view = memoryview(body)
        while view:
            view = view[os.write(fd, view) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


class FrameReader:
    """Turns received bytes and descriptors into frames. `close` closes what nobody took."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._fds: deque[int] = deque()

    def feed(self, data: bytes, fds: Sequence[int] = ()) -> Iterator[Frame]:
        """Frames completed by this data, in order. Raises FrameError when the peer breaks the protocol."""
        self._buffer += data
        self._fds.extend(fds)
        while len(self._buffer) >= _LENGTHS.size:
            header_size, body_size = _LENGTHS.unpack_from(self._buffer)
            if header_size > HEADER_MAX or body_size > INLINE_MAX:
                raise FrameError(f"a frame announces {header_size} + {body_size} bytes")
            end = _LENGTHS.size + header_size + body_size
            if len(self._buffer) < end:
                return
            header = bytes(self._buffer[_LENGTHS.size : _LENGTHS.size + header_size])
            body = bytes(self._buffer[_LENGTHS.size + header_size : end])
            del self._buffer[:end]
            yield self._frame(header, body)
        if self._fds and not self._buffer:  # a descriptor comes with its frame's first byte
            raise FrameError("a descriptor came that no frame announces")

    def _frame(self, header: bytes, body: bytes) -> Frame:
        try:
            fields = _header_fields(header.decode())
            kind = fields.pop("t")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise FrameError(f"a frame header is not a JSON object with a kind: {error}") from None
        if not isinstance(kind, str):
            raise FrameError("a frame's kind is not a string")
        fd = self._take_fd() if fields.pop("fd", 0) else None
        size = fields.pop("memfd", None)
        if size is not None:
            try:
                body = self._read_memfd(size)
            except FrameError:
                if fd is not None:
                    os.close(fd)
                raise
        return Frame(kind, fields, body, fd)

    def _take_fd(self) -> int:
        if not self._fds:
            raise FrameError("a frame announces a descriptor that did not come")
        return self._fds.popleft()

    def _read_memfd(self, size: object) -> bytes:
        fd = self._take_fd()
        try:
            if not isinstance(size, int) or not 0 <= size <= BODY_MAX:
                raise FrameError(f"a frame announces a body of {size!r} bytes")
            return _read_all(fd, size)
        finally:
            os.close(fd)

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popleft())


def _read_all(fd: int, size: int) -> bytes:
    """`size` bytes from the start. pread, not mmap: the other side may truncate the file meanwhile."""
    parts, offset = [], 0
    while offset < size:
        part = os.pread(fd, size - offset, offset)
        if not part:
            raise FrameError(f"a body announced as {size} bytes has {offset}")
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
