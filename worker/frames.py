"""The frames between an agent and one worker process: all kinds, and their encoding.

Layout of a frame: two big-endian 32-bit lengths (header, body), a header of JSON, a body of raw JSON.
The body is the payload (an input, an output, a progress value): the agent passes it on without parsing
it. A body over `INLINE_MAX` travels in a memfd instead (measured: 16 MiB through the
socket 20-34 ms, by memfd 5 ms), sealed, so that reading it takes bounded time whichever process made it; and
a file that the handler made as an open descriptor, never as a name.

    agent                         worker
      setup  ------------------->         once, first (+descriptor: its permissions for runs ahead)
             <-------------------  ready (concurrency: its slots, serves?, ahead?: runs, stages_ms?: its
                                   start) | setup_failed
             <-------------------  slots (n)  from now on it takes n at once; what runs may end
      run    ------------------->         body: the input; more?: s3Config, the caller's bucket, and
                                          traceparent, its place in a trace, and saved: `upto` of the save
                                          that the body ends with, after `input` bytes, case: it sends
                                          its own, and kept?: it answers `kept`; ahead?: before its turn,
                                          it begins with a permission, and is dropped without one
             <-------------------  progress (body)  chunk (n, body | +descriptor)
             <-------------------  file (n, name, media_type, +descriptor)
             <-------------------  save (n, upto, body: bytes)  a later attempt may go on from here
             <-------------------  case (body)  facts for the case of the job, should it fail; the last counts
             <-------------------  done (body?, in_file?, metrics) | failed (error, retryable, yielded?)
             <-------------------  fetch (n, url, max_bytes, timeout_s)  fetch this URL
     fetched ------------------->         (n, size, sha256, +descriptor), open for reading
fetch_failed ------------------->         (n, reason, error, retryable)  no answer once the job is stopped
             <-------------------  kept (n, first)  give back the chunks that the save covers, from this one
   kept_page ------------------->         (n, sizes, body: one JSON value after the other) | fetch_failed
      took   ------------------->         (n, save?) there is room again after this large chunk, or save
      cancel ------------------->         cooperative; the worker still answers with done or failed
      yield  ------------------->         (reason) give up the job's place after its next save: failed
                                          with yielded; a job that does not save runs on
      stop   ------------------->         after the running job
             <-------------------  retire (reason, lost?)  it takes nothing new and wants to be replaced;
                                   lost: so is all that it runs, but for this job, which is about to fail
             <-------------------  begun | returned (reason)  of a job that had to wait for its handler

Every frame about a job carries `job` and `attempt`. In an output, `{"$file": n}` stands for the n-th file.
This module knows bytes and descriptors only: no socket, no loop.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

HEADER_MAX = 64 * 1024
"""A header holds ids, a name and an error text, which its sender cuts to 32 KiB."""

INLINE_MAX = 1024 * 1024
"""Above this a body goes by memfd."""

BODY_MAX = 64 * 1024 * 1024
"""More than this is refused. An output of that size travels as a file: `done` says `in_file` then; a chunk as
its own descriptor."""

FDS_MAX = 8
"""Descriptors that come with one read, and that wait for their frame. A frame brings two at most."""

CHUNK_INLINE_MAX = 1_000_000
"""The agent uploads a chunk above this, and its sender waits for `took`. Otherwise the memory that waits for
an object store would have no bound, since a memfd takes no room in a socket's buffer."""

SAVE_INLINE_MAX = 48 * 1024
"""The agent uploads a save above this, and its sender waits for `took`, as for a chunk."""

SAVE_MAX = 40 * 1024 * 1024
"""More than this is refused as a save: it goes to a later attempt in one frame with the input."""

FILE_MARK = "$file"

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
"""The seals of a memfd with a body: its content is final, and in memory."""


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


_header_fields = json.JSONDecoder(parse_constant=_no_number).decode
_header_text = json.JSONEncoder(separators=(",", ":")).encode
_LENGTHS = struct.Struct(">II")


class FrameError(Exception):
    """The other side broke the protocol; the message says how. The connection cannot be used any more."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame. `kind` is one of those above; `fields` is the rest of the header; `fd` a received descriptor.
    A body that arrived in a memfd is `outside` until it is read.

    The receiver of a frame with descriptors owns them and closes them.
    """

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""
    fd: int | None = None
    outside: MemfdBody | None = None

    @property
    def job(self) -> str:
        return str(self.fields["job"])

    @property
    def attempt(self) -> int:
        return int(self.fields["attempt"])

    def close(self) -> None:
        """Closes the descriptors, for an owner that does not need them."""
        if self.fd is not None:
            os.close(self.fd)
        if self.outside is not None:
            self.outside.close()


def waits_for_took(frame: Frame) -> bool:
    """Returns whether the sender of this frame waits until the agent has room: a large chunk, or save."""
    if frame.kind == "save":
        return len(frame.body) > SAVE_INLINE_MAX
    return frame.kind == "chunk" and (len(frame.body) > CHUNK_INLINE_MAX or frame.fd is not None)


def kept_page(about: dict[str, Any], values: Sequence[bytes]) -> Frame:
    """Returns the answer to a `kept` frame; `about` has its job, attempt and number."""
    return Frame("kept_page", {**about, "sizes": [len(value) for value in values]}, b"".join(values))


def kept_values(page: Frame) -> list[bytes]:
    values, at = [], 0
    for size in page.fields["sizes"]:
        values.append(page.body[at : at + size])
        at += size
    return values


def encode(frame: Frame) -> tuple[bytes, list[int]]:
    """Returns the bytes to send and the descriptors to pass with their first byte.

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
    fd = os.memfd_create("stoker-body", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(body)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


@dataclass(frozen=True, slots=True)
class MemfdBody:
    """A body that arrived in a memfd. Its holder closes it."""

    fd: int
    size: int

    def read(self) -> bytes:
        """Raises FrameError for any other descriptor: the other side may pass whatever it likes."""
        try:
            sealed = fcntl.fcntl(self.fd, fcntl.F_GET_SEALS) & SEALS == SEALS
            found = os.fstat(self.fd).st_size if sealed else -1
            if found == self.size:
                return _read_all(self.fd, self.size)
        except OSError as error:
            raise FrameError(f"a body lies in what is not a memfd ({error.strerror})") from None
        if not sealed:
            raise FrameError("a body lies in a memfd that is not sealed")
        raise FrameError(f"a body announced as {self.size} bytes has {found}")

    def close(self) -> None:
        os.close(self.fd)


class FrameReader:
    """A reader that turns received bytes and descriptors into frames. `begun` are the bytes of a frame that
    is not whole yet. `close` closes the descriptors that are left."""

    def __init__(self) -> None:
        self.begun = bytearray()
        self._fds: deque[int] = deque()

    def feed(self, data: bytes, fds: Sequence[int] = ()) -> Iterator[Frame]:
        """Yields the frames that this data completes; `with_body` reads what arrived in a memfd. Raises
        FrameError if the peer breaks the protocol."""
        self.begun += data
        self._fds.extend(fds)
        while len(self.begun) >= _LENGTHS.size:
            header_size, body_size = _LENGTHS.unpack_from(self.begun)
            if header_size > HEADER_MAX or body_size > INLINE_MAX:
                raise FrameError(f"a frame announces {header_size} + {body_size} bytes")
            end = _LENGTHS.size + header_size + body_size
            if len(self.begun) < end:
                break
            header = bytes(self.begun[_LENGTHS.size : _LENGTHS.size + header_size])
            body = bytes(self.begun[_LENGTHS.size + header_size : end])
            del self.begun[:end]
            try:
                fields = _header_fields(header.decode())
                kind = fields.pop("t")
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise FrameError(f"a frame header is not a JSON object with a kind: {error}") from None
            except RecursionError:
                raise FrameError("a frame header is nested too deeply") from None
            if not isinstance(kind, str):
                raise FrameError("a frame's kind is not a string")
            fd = outside = None
            if "fd" in fields or "memfd" in fields:
                fd, outside = self._descriptors(fields, body)
            yield Frame(kind, fields, body, fd, outside)
        if self._fds and not self.begun:  # a descriptor comes with its frame's first byte
            raise FrameError("a descriptor came that no frame announces")
        if len(self._fds) > FDS_MAX:
            raise FrameError(f"{len(self._fds)} descriptors came that no frame announces")

    def _descriptors(self, fields: dict[str, Any], body: bytes) -> tuple[int | None, MemfdBody | None]:
        """Takes the descriptors that the header announces out of the fields, and returns them."""
        file, size = fields.pop("fd", None), fields.pop("memfd", None)
        if file not in (None, 1) or isinstance(file, bool):
            raise FrameError(f"a frame announces {file!r:.40} as its descriptor; 1 is allowed")
        if size is not None and (type(size) is not int or body or not 0 <= size <= BODY_MAX):
            raise FrameError(f"a frame announces a body of {size!r:.40} bytes")
        if len(self._fds) < (file is not None) + (size is not None):
            raise FrameError("a frame announces a descriptor that did not come")
        fd = None if file is None else self._fds.popleft()
        return fd, None if size is None else MemfdBody(self._fds.popleft(), size)

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popleft())


def with_body(frame: Frame) -> Frame:
    """Reads the body where that is still in a memfd. Raises FrameError, after closing the frame."""
    if frame.outside is None:
        return frame
    try:
        body = frame.outside.read()
    except FrameError:
        frame.close()
        raise
    frame.outside.close()
    return Frame(frame.kind, frame.fields, body, frame.fd)


def _read_all(fd: int, size: int) -> bytes:
    """Reads `size` bytes from the start of the file, wherever its offset stands."""
    parts, offset = [], 0
    while offset < size:
        part = os.pread(fd, size - offset, offset)
        if not part:
            raise FrameError(f"a body announced as {size} bytes has {offset}")
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
