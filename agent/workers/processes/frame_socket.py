"""The socket of a worker on the agent's loop: frames out of a buffer that never blocks, frames in.

send -> queue -> sendmsg (now, or when the socket takes more)
recvmsg -> FrameReader -> held, in order -> on_frame, unless paused: then the kernel's buffer fills and the
                           '- a body in a memfd is read and checked in a thread                worker waits

A frame that has begun must be whole FRAME_S later, unless it is the agent that does not read.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from msgspec import Struct

from stoker.agent.worker_frames import is_json, require_json
from stoker.outbound.run_in_thread import run_in_thread
from stoker.worker.frames import FDS_MAX, Frame, FrameError, FrameReader, MemfdBody, encode

READ_MAX = 256 * 1024
_FDS_ROOM = socket.CMSG_SPACE(FDS_MAX * array.array("i").itemsize)

DRAIN_MAX = 16 * 1024 * 1024
"""What is still read of a dead worker: more than the kernel holds. A helper that it forked may write on."""

FRAME_S = 30.0
"""How long a frame may take from its first byte to its last. The kernel takes it from a worker in one
call."""

_NONE_LEFT = "the agent has no file descriptor left for one that it sent"

UNREAD_MAX = 10_000
"""Frames that wait to be sent: a worker may send requests without end, and read no answer."""


class _Outgoing(Struct):
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
        self._socket, self._loop, self._on_frame = sock, loop, on_frame
        self._on_broken = on_broken
        self._reader = FrameReader()
        self._outgoing: deque[_Outgoing] = deque()
        self._received: deque[Frame] = deque()  # read, and not handed on yet
        self._body: asyncio.Future[bytes] | None = None  # of the first that is held
        self._half: asyncio.TimerHandle | None = None
        self._exit: asyncio.TimerHandle | None = None
        self._broken = False  # reported already
        self._reading = False
        self._paused = False
        self._writing = False
        self._ended = False  # the worker's end is closed, or of no further use
        self._finishing = False
        self._read_or_not()

    def send(self, frame: Frame) -> None:
        """Raises FrameError for a frame over the limits, OSError where no descriptor is left for it; nothing
        is sent then."""
        if self._ended:
            return
        data, fds = encode(frame)
        if frame.fd is not None:
            try:
                fds[0] = os.dup(frame.fd)
            except OSError:
                _close_all(fds[1:])
                raise
        self._outgoing.append(_Outgoing(memoryview(data), fds))
        if len(self._outgoing) > UNREAD_MAX:
            self._broke(f"it has not read {UNREAD_MAX} frames that it was sent")
        if not self._writing:
            self._write()

    def _write(self) -> None:
        while self._outgoing:
            first = self._outgoing[0]
            try:
                rights = []
                if first.fds:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", first.fds))]
                sent = self._socket.sendmsg([first.data], rights, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self._drop_outgoing()  # dead: its exit is reported by the pidfd
                break
            if first.fds:
                _close_all(first.fds)
            first.data = first.data[sent:]
            if not first.data:
                self._outgoing.popleft()
        if self._writing != bool(self._outgoing):
            self._want_write(bool(self._outgoing))

    def _want_write(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self._socket, self._write)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._socket)
        self._writing = wanted

    def _read_or_not(self) -> None:
        """Reads from the socket, or stops: nothing is read while something waits to be handed on."""
        wanted = not (self._ended or self._paused or self._received)
        if wanted and not self._reading:
            self._loop.add_reader(self._socket, self._read)
        elif self._reading and not wanted:
            self._loop.remove_reader(self._socket)
        self._reading = wanted
        half = wanted and self._reader.begun
        if half and self._half is None:
            self._half = self._loop.call_later(FRAME_S, self._overdue)
        elif self._half is not None and not half:
            self._half.cancel()
            self._half = None

    def _overdue(self) -> None:
        """Breaks off over a late frame. What came meanwhile is handed on first: it may be the rest, which
        stops this timer."""
        late, drained = self._half, 0
        while self._reading and self._half is late and drained < DRAIN_MAX and (count := self._read()):
            drained += count
        if self._reading and self._half is late:
            came = len(self._reader.begun)
            self._broke(f"{came} bytes of a frame came in {FRAME_S:g} s, and not the rest")

    def _read(self) -> int | None:
        """Returns how much came; None when nothing is there now, 0 at the end."""
        try:
            # Not socket.recv_fds: Python 3.11's drops its flags, and the next worker would get a descriptor.
            data, ancillary, flags, _ = self._socket.recvmsg(READ_MAX, _FDS_ROOM, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data, ancillary, flags = b"", [], 0
        fds, why = _fds_in(ancillary) if ancillary else (), ""
        if flags & socket.MSG_CTRUNC:
            full = len(fds) >= FDS_MAX
            why = f"more than {FDS_MAX} descriptors came at once" if full else _NONE_LEFT
        try:
            for frame in self._reader.feed(data, fds):
                if self._half is not None:
                    self._half.cancel()
                    self._half = None
                self._received.append(frame)
        except FrameError as error:
            why = why or str(error)
        self._hand_on()
        if why:
            self._broke(why)
        elif not data and not self._ended:  # all ends are closed: nothing more can come
            self._ended = True
            self._exit = self._loop.call_later(FRAME_S, self._broke, "it closed its socket and lived on")
        if self._received or self._reader.begun or self._ended:
            self._read_or_not()
        return len(data)

    def _hand_on(self) -> None:
        """Hands on frames in their order; a body that is being read holds up what came behind it."""
        while self._received and not self._paused and self._body is None:
            frame = self._received[0]
            if (
                frame.outside is not None
                and not self._finishing
                and self._read_in_thread(frame.kind, frame.outside)
            ):
                return
            self._received.popleft()
            if frame.outside is not None:
                try:
                    frame = replace(frame, body=_taken(frame.kind, frame.outside), outside=None)
                except FrameError as error:
                    replace(frame, outside=None).close()
                    self._broke(str(error))
                    return
            self._on_frame(frame)

    def _read_in_thread(self, kind: str, outside: MemfdBody) -> bool:
        """Returns whether a thread reads the body now. The thread has a descriptor of its own: this socket
        may be closed meanwhile."""
        own: MemfdBody | None = None
        try:
            own = MemfdBody(os.dup(outside.fd), outside.size)
            self._body = run_in_thread("a body from a worker", lambda: _taken(kind, own))
        except (OSError, RuntimeError):  # no descriptor or no thread is left
            if own is not None:
                own.close()
            return False
        self._body.add_done_callback(self._body_is_here)
        return True

    def _body_is_here(self, body: asyncio.Future[bytes]) -> None:
        error = None if body.cancelled() else body.exception()
        if self._body is not body:
            return  # it was read again, at the end
        self._body = None
        frame = self._received.popleft()
        if error is not None:
            frame.close()
            self._broke(str(error))
            return
        assert frame.outside is not None
        frame.outside.close()
        self._received.appendleft(replace(frame, body=body.result(), outside=None))
        self._hand_on()
        self._read_or_not()

    def _broke(self, why: str) -> None:
        """Reports the first break. What came later is dropped."""
        if not self._broken:
            self._broken = self._ended = True
            self._drop_received()
            self._read_or_not()
            self._on_broken(why)

    def pause(self) -> None:
        """Does nothing once it finishes: what a dead worker has sent is handed on then or never."""
        if not self._paused and not self._finishing:
            self._paused = True
            self._read_or_not()

    def resume(self) -> None:
        """Resumes reading. What was held is handed on from the loop, not from within this call."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._release)

    def _release(self) -> None:
        if not self._finishing:
            self._hand_on()
            self._read_or_not()

    def finish(self) -> None:
        """Finishes after the worker's death: hands on every frame that it had sent, then closes."""
        self._finishing, self._paused, self._body = True, False, None
        drained = 0
        try:
            self._hand_on()
            while not self._ended and drained < DRAIN_MAX and (count := self._read()):
                drained += count
        finally:
            self.close()

    def close(self) -> None:
        self._ended = True
        self._drop_received()
        self._read_or_not()
        if self._exit is not None:
            self._exit.cancel()
        self._want_write(False)
        self._drop_outgoing()
        self._reader.close()
        self._socket.close()

    def _drop_received(self) -> None:
        self._body = None
        while self._received:
            self._received.popleft().close()

    def _drop_outgoing(self) -> None:
        while self._outgoing:
            _close_all(self._outgoing.popleft().fds)


def _taken(kind: str, outside: MemfdBody) -> bytes:
    """Returns the body of a frame of this kind; what it came in is closed. Raises FrameError."""
    try:
        body = outside.read()
    finally:
        outside.close()
    if is_json(kind):
        require_json(body)
    return body


def _fds_in(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    rights = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    return list(rights)


def _close_all(fds: list[int]) -> None:
    while fds:
        with contextlib.suppress(OSError):
            os.close(fds.pop())
