"""The worker's end of its socket: sends and receives frames, and ends the process when the agent has ended.

The socket stays in blocking mode. A send waits while the agent does not read: that is the back-pressure on a
handler that emits faster than the platform can store. Receiving can wait (`receive`) or not (`poll`). Both
directions may be used from any thread. A chunk of partial output is sent with `send_chunk`, which returns
once the agent has room for the next.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from stoker.worker.between_jobs.process_state import flush_output
from stoker.worker.frames import Frame, FrameError, FrameReader, encode, waits_for_took, with_body

_READ_BYTES = 64 * 1024
_WAIT = int(socket.MSG_CMSG_CLOEXEC)
_DO_NOT_WAIT = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * 4)  # four descriptors; the agent sends at most a memfd at a time

_IN_FLIGHT_S = 0.002

AGENT_GONE_STATUS = 3

ChunkKey: TypeAlias = tuple[str, int, int, bool]
"""Job, attempt and number, and whether it is a save's."""


class AgentGone(Exception):
    """The other end of the socket is closed, or a direction of it can no longer be used."""


class Channel:
    """The worker's end of its socket. Owns `sock`, which must be in blocking mode."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._torn = False  # in the middle of a frame
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._taken: set[ChunkKey] = set()  # large chunks whose senders have not noticed yet

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._reader.close()
        self._sock.close()

    def send(self, frame: Frame) -> None:
        """Raises FrameError for a frame that is too large, and AgentGone.

        A signal handler of the user's may raise while this sends; then nothing more can be sent.
        """
        data, fds = encode(frame)
        try:
            with self._sending:
                if self._torn:
                    raise AgentGone
                self._torn = True
                if fds:
                    data = data[self._send_with_fds(data, fds) :]
                self._sock.sendall(data)
                self._torn = False
        except (BrokenPipeError, ConnectionResetError):
            raise AgentGone from None
        except OSError as error:
            _exit_if_closed(error)
            raise
        finally:
            for fd in fds:
                if fd != frame.fd:
                    os.close(fd)

    def send_chunk(self, frame: Frame, on_frame: Callable[[Frame], None]) -> None:
        """Sends a chunk or a save. Waits for the `took` of a large one, which comes in any case.

        Frames that arrive meanwhile are passed to `on_frame`, on this thread.
        """
        self.send(frame)
        if not waits_for_took(frame):
            return
        key = chunk_key(frame)
        with self._receiving:
            while key not in self._taken:
                for other in self._read(_WAIT):
                    on_frame(other)
            self._taken.remove(key)

    def _send_with_fds(self, data: bytes, fds: list[int]) -> int:
        """Waits while as many of this user's descriptors are in flight as it may have open."""
        ancillary = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _packed(fds))
        while True:
            try:
                return self._sock.sendmsg([data], [ancillary])
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:
                    raise
            time.sleep(_IN_FLIGHT_S)

    def wait(self, done: Callable[[], object], on_frame: Callable[[Frame], None]) -> None:
        """Passes what arrives to `on_frame`, on this thread, until `done`. Raises AgentGone."""
        with self._receiving:
            while not done():
                for frame in self._read(_WAIT):
                    on_frame(frame)

    def receive(self) -> list[Frame]:
        """Waits for at least one frame. Raises AgentGone."""
        with self._receiving:
            while True:
                if frames := self._read(_WAIT):
                    return frames

    def receive_now(self) -> list[Frame]:
        """Returns the frames that have arrived, without waiting, each `took` too: for a thread that reads for
        all the others. Raises AgentGone.
        """
        try:
            return self._read(_DO_NOT_WAIT, keep_took=False)
        except BlockingIOError:
            return []

    def poll(self, on_frame: Callable[[Frame], object]) -> None:
        """Passes what has arrived to `on_frame`, without waiting. Raises AgentGone.

        Does nothing while another thread reads. That thread reads on only after `on_frame` has returned: it
        might be waiting for a frame that is here already.
        """
        if not self._receiving.acquire(blocking=False):
            return
        try:
            try:
                frames = self._read(_DO_NOT_WAIT)
            except BlockingIOError:
                return
            for frame in frames:
                on_frame(frame)
        finally:
            self._receiving.release()

    def _read(self, flags: int, *, keep_took: bool = True) -> list[Frame]:
        """Reads once. Keeps each `took` for the thread that sent the chunk, or else returns it, too."""
        try:
            data, ancillary, _, _ = self._sock.recvmsg(_READ_BYTES, _ANCILLARY_BYTES, flags)
        except ConnectionResetError:
            raise AgentGone from None
        except OSError as error:
            _exit_if_closed(error)
            raise
        if not data:
            raise AgentGone
        try:
            found = self._reader.feed(data, _unpacked(ancillary) if ancillary else ())
            frames = [frame if frame.outside is None else with_body(frame) for frame in found]
        except FrameError as error:
            print(f"the agent broke the protocol: {error}", file=sys.stderr)
            raise AgentGone from None
        if not keep_took:
            return frames
        others = []
        for frame in frames:
            if frame.kind == "took":
                self._taken.add(chunk_key(frame))
            else:
                others.append(frame)
        return others


def _exit_if_closed(error: OSError) -> None:
    """Exits if the handler has closed the socket, as a handler may that closes descriptors which are not its
    own. The agent then ends what the handler started."""
    if error.errno in (errno.EBADF, errno.ENOTSOCK):
        with contextlib.suppress(Exception):
            print("the handler closed the socket that leads to the agent", file=sys.stderr)
        flush_output()
        os._exit(AGENT_GONE_STATUS)


def leave() -> NoReturn:
    """Ends this process and everything the handler started: once the agent has ended, nothing else would.

    Nothing is unwound: a handler may be in the middle of anything, and its result is of no use.
    """
    flush_output()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(AGENT_GONE_STATUS)


def chunk_key(frame: Frame) -> ChunkKey:
    """Returns what a chunk or a save, and its `took`, have in common."""
    is_save = frame.kind == "save" or frame.fields.get("save") is True
    return frame.job, frame.attempt, int(frame.fields["n"]), is_save


def _packed(fds: list[int]) -> bytes:
    return b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)


def _unpacked(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(data) - len(data) % 4
            fds += [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, whole, 4)]
    return fds
