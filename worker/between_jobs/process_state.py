"""The state of the process that a job may have changed, restored before the next job runs.

    timers            those that were not running are stopped: an alarm of one job would end the next
    signals           handlers and the mask; what is pending of an unblocked one is dropped
    umask, folder, limits of resources

All become what they were when the handler was set up: what its import or `setup` chose stays. If something
cannot be restored (a limit that may not be raised again, a deleted folder), the worker is replaced. So
it is where jobs keep many descriptors open (`open_files`): nobody but the handler may close them. This runs
after each job, so it is cheap (18 us on an EPYC): `_signal` has the functions of `signal` without its
enumerations, which would make it 100 us.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import sys
from collections.abc import Iterator

from stoker.worker.between_jobs.open_files import OPEN, OpenFiles

_KNOWN = "resource" in sys.modules
import resource  # noqa: E402

if not _KNOWN:  # a handler's folder may well have a module of this name, which is to win
    del sys.modules["resource"]

_TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)
_STOPPED = (0.0, 0.0)
_SIGNALS = tuple(int(n) for n in sorted(_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}))
_LIMITS = {
    getattr(resource, name): name
    for name in (
        "RLIMIT_AS",
        "RLIMIT_CORE",
        "RLIMIT_CPU",
        "RLIMIT_DATA",
        "RLIMIT_FSIZE",
        "RLIMIT_MEMLOCK",
        "RLIMIT_NOFILE",
        "RLIMIT_NPROC",
        "RLIMIT_STACK",
    )
}
"""Each takes a system call. The other limits bound nothing that a job in Python uses."""

_FOLDER = "/proc/self/cwd"
"""Names the working directory, also one that is gone."""

_TRIES = 3
"""A signal handler may raise anywhere in `put_back`, until its timer is stopped."""


class ProcessState:
    """The state of the process when this is created, on the main thread."""

    def __init__(self) -> None:
        self._timers = tuple(which for which in _TIMERS if _signal.getitimer(which) == _STOPPED)
        self._handlers = tuple(map(_signal.getsignal, _SIGNALS))
        self._blocked = set(_signal.pthread_sigmask(_signal.SIG_BLOCK, ()))
        self._limits = tuple(map(resource.getrlimit, _LIMITS))
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._folder = os.readlink(_FOLDER)
        self.open_files = OpenFiles()

    def put_back(self) -> str:
        """Restores the state, on the main thread. Returns what could not be restored, or an empty text."""
        for _ in range(_TRIES):
            try:
                for which in self._timers:
                    _signal.setitimer(which, 0)
                problems: list[str] = []
                blocked = set(_signal.pthread_sigmask(_signal.SIG_BLOCK, ()))
                if blocked != self._blocked or tuple(map(_signal.getsignal, _SIGNALS)) != self._handlers:
                    problems += self._restore_signals(blocked)
                os.umask(self._umask)
                if tuple(map(resource.getrlimit, _LIMITS)) != self._limits:
                    problems += self._restore_limits()
                if self._folder != os.readlink(_FOLDER):
                    problems += self._enter_folder()
                if os.stat(OPEN).st_size >= self.open_files.ask_from and (why := self.open_files.excess()):
                    problems.append(why)
                return "; ".join(problems)
            except BaseException:  # raised by a signal handler of the job's, SystemExit too
                continue
        return "a job left a signal's handler that raises"

    def _restore_signals(self, blocked: set[int]) -> Iterator[str]:
        for number in _signal.sigpending() & blocked - self._blocked:
            _signal.signal(number, _signal.SIG_IGN)  # drops the pending signal
        for number, before in zip(_SIGNALS, self._handlers, strict=True):
            if _signal.getsignal(number) == before:
                continue
            if before is None:
                yield f"the handler of signal {number} was not Python's, and cannot be put back"
            else:
                _signal.signal(number, before)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._blocked)

    def _restore_limits(self) -> Iterator[str]:
        for (which, name), before in zip(_LIMITS.items(), self._limits, strict=True):
            if resource.getrlimit(which) != before:
                try:
                    resource.setrlimit(which, before)
                except (OSError, ValueError):
                    yield f"a job lowered {name}, which cannot be raised again"

    def _enter_folder(self) -> Iterator[str]:
        try:
            os.chdir(self._folder)
        except OSError as error:
            yield f"the folder {self._folder} cannot be entered again: {error.strerror}"


def flush_output() -> None:
    """Flushes stdout and stderr, so that none of what a handler printed stays in a buffer."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # a handler may have closed them, or replaced them with anything
            continue
