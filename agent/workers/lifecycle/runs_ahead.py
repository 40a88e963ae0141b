"""The runs that are in a worker's socket before their turn, and the permissions to begin them.

    sent with a permission ──the worker takes it, once it has ended the run before──> begun
           '── withdrawn: the agent takes it back, and the worker drops the run when it comes to it

A permission is a byte in a pipe that both sides read. So each run is either begun or withdrawn, and the agent
knows which at once, although a worker that computes reads nothing. Permissions are alike, and runs are begun
in the order in which they were sent: those that are taken back belong to the last ones.

After a withdrawal nothing is sent ahead until a run that was sent in its turn has ended. The worker has then
dropped what was withdrawn, and cannot take a permission for it.
"""

from __future__ import annotations

import contextlib
import os

from stoker.wire.messages import AttemptKey

AHEAD_MOST = 2
"""Runs in the socket before their turn. More save little: the agent sends the next one in time."""

_PERMISSION = b"r"
_READ_MAX = 4096


class RunsAhead:
    """The runs that were sent ahead to a worker process. `fd`, which the process inherits, is where it takes
    permissions; None where each run is sent in its turn. `most`: how many runs the process takes ahead; 0
    until it is ready. `current` has its slot; `sent` are the runs that were sent ahead, and have not ended.
    `withdrawn`: some runs were taken back, and the process may not have dropped them yet. `prints`: its jobs
    print. Nothing is sent ahead then: what a job prints first could not be distinguished from what the job
    before it printed last."""

    def __init__(self, *, enabled: bool = False) -> None:
        self.fd: int | None = None
        self._read = self._write = -1
        if enabled:
            with contextlib.suppress(OSError):  # no descriptor is left
                self._open()
        self.most = 0
        self.prints = False
        self.sent: list[AttemptKey] = []
        self.current: AttemptKey | None = None
        self.withdrawn = False
        self._clears: AttemptKey | None = None

    def _open(self) -> None:
        """Opens the pipe of permissions. The agent reads through a file description of its own: on the one
        that the worker inherits, the worker could make reads block."""
        theirs, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._read = os.open(f"/proc/self/fd/{theirs}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(theirs)
            os.close(write)
            raise
        self.fd, self._write = theirs, write

    @property
    def room(self) -> int:
        """Returns how many more runs may be sent ahead."""
        if self.fd is None or self.prints or self.withdrawn:
            return 0
        return self.most - len(self.sent) + (self.current in self.sent)

    def send(self, key: AttemptKey) -> None:
        """Gives the permission for a run. To be called before the run is sent: a run without a permission is
        dropped."""
        self.sent.append(key)
        os.write(self._write, _PERMISSION)

    def unsend(self, key: AttemptKey) -> None:
        """Takes back the permission of a run that could not be sent after all. The permission is there: of
        those that the process takes, each is for a run that came."""
        self.sent.remove(key)
        os.read(self._read, len(_PERMISSION))

    def clear_after(self, key: AttemptKey) -> None:
        """Notes a run that is sent in its turn: once that has ended, what was withdrawn is dropped."""
        self._clears = key

    def end(self, key: AttemptKey) -> None:
        """Notes that the run has left the worker."""
        if key in self.sent:
            self.sent.remove(key)
        if key == self._clears:
            self.withdrawn, self._clears = False, None

    def withdraw(self) -> list[AttemptKey]:
        """Withdraws the runs that were sent ahead and that the process has not begun, and will not; returns
        them."""
        if not self.sent or self.fd is None:
            return []
        left = 0
        with contextlib.suppress(BlockingIOError):
            left = len(os.read(self._read, _READ_MAX))
        if not left:
            return []
        self.withdrawn = True
        kept = max(len(self.sent) - left, 0)
        withdrawn, self.sent = self.sent[kept:], self.sent[:kept]
        return withdrawn

    def close(self) -> None:
        """Closes the pipe once the process has ended."""
        if self.fd is not None:
            for fd in (self.fd, self._read, self._write):
                os.close(fd)
            self.fd = None
