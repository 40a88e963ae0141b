"""One worker's socket on the agent's loop: frames out of a buffer that never blocks, frames in.

send -> queue -> sendmsg (now, or when the socket takes more)
recvmsg -> FrameReader -> on_frame, unless paused: then the kernel's buffer fills and the worker waits
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stoker.worker.frames import Frame, FrameError, FrameReader, encode

READ_MAX = 256 * 1024
FDS_MAX = 8
"""Descriptors that come with one read. A frame brings two at most."""

DRAIN_MAX = 16 * 1024 * 1024
"""What is still read of a dead worker: more than the kernel holds. A helper that it forked may write on."""


WITH_DESCRIPTOR = frozenset({"file", "chunk"})
"""The frames that may bring one. Nobody who takes another frame looks for it, or would close it."""


class BoundedReader(FrameReader):
    """Refuses a worker that sends descriptors which no frame announces, or with a frame that has none: the
    agent would run out of them."""

    def feed(self, data: bytes, fds: Sequence[int] = ()) -> Iterator[Frame]:
        for frame in super().feed(data, fds):
            if frame.fd is not None and frame.kind not in WITH_DESCRIPTOR:
                frame.close()
                raise FrameError(f"a {frame.kind[:20]} frame came with a descriptor")
            yield frame
        if len(self._fds) > FDS_MAX:
            raise FrameError(f"{len(self._fds)} descriptors came that no frame announces")


@dataclass(slots=True)
class _Outgoing:
    data: memoryview
    fds: list[int]  # owned; they go with the first byte


class FrameSocket:
    """Calls `on_frame` for each frame and `on_broken` once when the worker breaks the protocol."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[Frame], None],
        on_broken: Callable[[str], None],
    ) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._loop = loop
        self._on_frame = on_frame
        self._on_broken = on_broken
        self._reader = BoundedReader()
        self._outgoing: deque[_Outgoing] = deque()
        self._held: deque[Frame] = deque()  # read, but paused before they were handed on
        self._paused = False
        self._writing = False
        self._ended = False  # the worker's end is closed, or of no further use
        self._finishing = False
        loop.add_reader(sock, self._readable)

    def send(self, frame: Frame) -> None:
        """Raises FrameError for a frame over the limits; nothing is sent then."""
        if self._ended:
            return
        data, fds = encode(frame)
        if frame.fd is not None:
            fds[0] = os.dup(frame.fd)
        self._outgoing.append(_Outgoing(memoryview(data), fds))
        if not self._writing:
            self._write()

    def _write(self) -> None:
        while self._outgoing:
            first = self._outgoing[0]
            try:
                sent = _send(self._socket, first.data, first.fds)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self._drop_outgoing()  # dead: its exit is reported by the pidfd
                break
            _close_all(first.fds)
            first.data = first.data[sent:]
            if not first.data:
                self._outgoing.popleft()
        self._want_write(bool(self._outgoing))

    def _want_write(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self._socket, self._write)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._socket)
        self._writing = wanted

    def _readable(self) -> None:
        if self._read() == 0:
            self._stop_reading()  # all ends closed: nothing more can come, and the exit is near

    def _read(self) -> int | None:
        """How much came; None when nothing is there now, 0 at the end."""
        try:
            data, fds, whole = _receive(self._socket)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return 0
        try:
            for frame in self._reader.feed(data, fds):
                self._hand_on(frame)
            if not whole:
                raise FrameError(f"more than {FDS_MAX} descriptors came at once")
        except FrameError as error:
            self._stop_reading()
            self._on_broken(str(error))
            return 0
        return len(data)

    def _hand_on(self, frame: Frame) -> None:
        if self._paused:
            self._held.append(frame)
        else:
            self._on_frame(frame)

    def _stop_reading(self) -> None:
        if not self._ended:
            self._ended = True
            self._loop.remove_reader(self._socket)

    def pause(self) -> None:
        """Nothing once it finishes: what a dead worker has sent has no other time to be heard."""
        if not self._paused and not self._finishing:
            self._paused = True
            self._loop.remove_reader(self._socket)

    def resume(self) -> None:
        """What was held is handed on from the loop, not from within this call."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._release)

    def _release(self) -> None:
        while self._held and not self._paused:
            self._on_frame(self._held.popleft())
        if not self._paused and not self._ended:
            self._loop.add_reader(self._socket, self._readable)

    def finish(self) -> None:
        """The worker is dead: hands on every frame that it had sent, then closes."""
        self._finishing, self._paused = True, False
        drained = 0
        try:
            while self._held:
                self._on_frame(self._held.popleft())
            while not self._ended and drained < DRAIN_MAX and (count := self._read()):
                drained += count
        finally:
            self.close()

    def close(self) -> None:
        self._stop_reading()
        self._want_write(False)
        self._drop_outgoing()
        while self._held:
            if (fd := self._held.popleft().fd) is not None:
                os.close(fd)
        self._reader.close()
        self._socket.close()

    def _drop_outgoing(self) -> None:
        while self._outgoing:
            _close_all(self._outgoing.popleft().fds)


def _send(sock: socket.socket, data: memoryview, fds: list[int]) -> int:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    return sock.sendmsg([data], rights, socket.MSG_NOSIGNAL)


def _receive(sock: socket.socket) -> tuple[bytes, list[int], bool]:
    """Bytes, descriptors, and whether all descriptors came. Not socket.recv_fds: Python 3.11's drops its
    flags, and a descriptor would pass on to the next worker."""
    rights = array.array("i")
    room = socket.CMSG_SPACE(FDS_MAX * rights.itemsize)
    data, ancillary, flags, _ = sock.recvmsg(READ_MAX, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    return data, list(rights), not flags & socket.MSG_CTRUNC


def _close_all(fds: list[int]) -> None:
    while fds:
        with contextlib.suppress(OSError):
            os.close(fds.pop())
