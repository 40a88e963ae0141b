"""The sockets of one blocking call, so that somebody else can end the call: a thread that waits for a server
cannot be stopped otherwise.

    with line: ── the call's connections tell `in_use` their sockets ──> the call ends by itself
        line.end(), from any thread ──> the sockets are shut down: what waits for them fails at once, and
                                        no further connection is opened

For calls that make all of their requests in one thread.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class LineEnded(OSError):
    """The call was ended from elsewhere: its deadline has passed, or nobody wants its result any more."""


class Line:
    """Entered by the thread that makes the call. What is pooled is safe: after the call, its sockets are no
    longer those of this line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self.ended = False

    def __enter__(self) -> Line:
        _of_thread.line = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _of_thread.line = None
        with self._lock:
            self._sockets.clear()

    def uses(self, connected: socket.socket) -> None:
        """Raises LineEnded if the call was ended."""
        with self._lock:
            self.check()
            self._sockets.add(connected)

    def check(self) -> None:
        """Raises LineEnded if the call was ended."""
        if self.ended:
            raise LineEnded("the call was ended")

    def end(self) -> None:
        with self._lock:
            self.ended = True
            for one in self._sockets:
                with suppress(OSError):
                    socket.socket.shutdown(one, socket.SHUT_RDWR)  # of TLS, too: no word is said


class _OfThread(threading.local):
    line: Line | None = None


_of_thread = _OfThread()


def refuse_ended() -> None:
    """Raises LineEnded if this thread's call was ended."""
    line = _of_thread.line
    if line is not None:
        line.check()


def in_use(connected: socket.socket | None) -> None:
    """Notes that this thread's call uses the socket. Raises LineEnded if the call was ended."""
    line = _of_thread.line
    if line is not None and connected is not None:
        line.uses(connected)
