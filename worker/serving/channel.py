"""The worker's end of its socket: frames in, frames out, and what to do when the agent is gone.

The socket stays in blocking mode. A send waits while the agent does not read: that is the back-pressure on a
handler that emits faster than the platform can store. Receiving can wait (`receive`) or not (`poll`). Both
directions may be used from any thread. A large piece of partial output is sent with `send_piece`, which
returns once the agent has room for the next.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from stoker.worker import printed
from stoker.worker.frames import Frame, FrameError, FrameReader, encode

_READ_SIZE = 64 * 1024
_WAIT = int(socket.MSG_CMSG_CLOEXEC)
_DO_NOT_WAIT = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
_ANCILLARY_SIZE = socket.CMSG_SPACE(4 * 4)  # four descriptors; the agent sends at most a memfd at a time

AGENT_GONE_STATUS = 3


class AgentGone(Exception):
    """The other end of the socket is closed, or a direction of it can no longer be used."""


class Channel:
    """Owns `sock`, which must be in blocking mode."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._torn = False  # in the middle of a frame
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._taken: set[tuple[str, int, int]] = set()  # large pieces whose senders have not noticed yet

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._reader.close()
        self._sock.close()

    def send(self, frame: Frame) -> None:
        """Raises FrameError for a frame that is too large, and AgentGone."""
        data, fds = encode(frame)
        try:
            with self._sending:
                self._send_whole(data, fds)
        except (BrokenPipeError, ConnectionResetError):
            raise AgentGone from None
        except OSError as error:
            _end_if_closed(error)
            raise
        finally:
            for fd in fds:
                if fd != frame.fd:
                    os.close(fd)

    def send_piece(self, frame: Frame, hear: Callable[[Frame], None]) -> None:
        """Send a large chunk and wait for its `took`. What arrives meanwhile is given to `hear`, on this
        thread. The agent answers a piece that it does not want, too."""
        self.send(frame)
        piece = piece_of(frame)
        with self._receiving:
            while piece not in self._taken:
                for other in self._take(_WAIT):
                    hear(other)
            self._taken.remove(piece)

    def _send_whole(self, data: bytes, fds: list[int]) -> None:
        """A signal handler of the user's may raise in here; what was sent by then is not known."""
        if self._torn:
            raise AgentGone
        self._torn = True
        if fds:
            ancillary = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _packed(fds))
            data = data[self._sock.sendmsg([data], [ancillary]) :]
        self._sock.sendall(data)
        self._torn = False

    def wait(self, done: Callable[[], bool], hear: Callable[[Frame], None]) -> None:
        """Give what arrives to `hear`, on this thread, until it is done. Raises AgentGone."""
        with self._receiving:
            while not done():
                for frame in self._take(_WAIT):
                    hear(frame)

    def receive(self) -> list[Frame]:
        """Wait for at least one frame. Raises AgentGone."""
        with self._receiving:
            while True:
                frames = self._take(_WAIT)
                if frames:
                    return frames

    def hear(self) -> list[Frame]:
        """What has arrived, without waiting, each `took` too: for the one thread that reads for all others.
        Raises AgentGone."""
        try:
            return self._read(_DO_NOT_WAIT)
        except BlockingIOError:
            return []

    def poll(self, hear: Callable[[Frame], object]) -> None:
        """Give what has arrived to `hear`, without waiting; nothing while another thread is looking. That one
        looks on only when all was heard: it might wait for what is here already. Raises AgentGone."""
        if not self._receiving.acquire(blocking=False):
            return
        try:
            for frame in self._polled():
                hear(frame)
        finally:
            self._receiving.release()

    def _polled(self) -> list[Frame]:
        try:
            return self._take(_DO_NOT_WAIT)
        except BlockingIOError:
            return []

    def _take(self, flags: int) -> list[Frame]:
        frames = self._read(flags)
        self._taken.update(piece_of(frame) for frame in frames if frame.kind == "took")
        return [frame for frame in frames if frame.kind != "took"]

    def _read(self, flags: int) -> list[Frame]:
        try:
            data, ancillary, _, _ = self._sock.recvmsg(_READ_SIZE, _ANCILLARY_SIZE, flags)
        except ConnectionResetError:
            raise AgentGone from None
        except OSError as error:
            _end_if_closed(error)
            raise
        if not data:
            raise AgentGone
        try:
            return list(self._reader.feed(data, _unpacked(ancillary) if ancillary else ()))
        except FrameError as error:
            print(f"the agent broke the protocol: {error}", file=sys.stderr)
            raise AgentGone from None


def _end_if_closed(error: OSError) -> None:
    """A handler that closes descriptors which are not its own may close the socket. The agent is there, sees
    this end, and ends what the handler started."""
    if error.errno in (errno.EBADF, errno.ENOTSOCK):
        with contextlib.suppress(Exception):
            print("the handler closed the socket that leads to the agent", file=sys.stderr)
        printed.flush()
        os._exit(AGENT_GONE_STATUS)


def leave() -> NoReturn:
    """End this process and everything the handler started: with the agent gone, nobody else would.

    Nothing is unwound. A handler may be in the middle of anything, and its work has become worthless.
    """
    printed.flush()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(AGENT_GONE_STATUS)


def piece_of(frame: Frame) -> tuple[str, int, int]:
    return frame.job, frame.attempt, int(frame.fields["n"])


def _packed(fds: list[int]) -> bytes:
    return b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)


def _unpacked(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(data) - len(data) % 4
            fds += [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, whole, 4)]
    return fds
