"""The log of a worker, through all of its processes: the last lines, numbered from its first.

    begin(tail) ── a process prints ── end() ── begin(tail) ── the next one prints ...

Copies nothing while a process runs: its lines stay in its own tail until it ends. A line keeps its number
when the process that printed it has ended, so a reader that follows the worker notices no change.
"""

from __future__ import annotations

from collections.abc import Callable

from stoker.agent.host.logs.tail import KEPT, WATCHED, Line, LogTail, TailListener


class WorkerLog:
    """The log of a worker over all its processes. `after` and `watch` are those of a TailListener; there is
    one watcher at most."""

    def __init__(self) -> None:
        self._earlier: tuple[Line, ...] = ()
        self._before = 0  # lines of the processes that have ended; `_earlier` are the last of them
        self._printed: TailListener | None = None
        self._on_lines: Callable[[], None] | None = None
        self._stop: Callable[[], None] = _nothing

    def begin(self, tail: LogTail) -> None:
        """Goes on with the tail of a new process."""
        self._printed = TailListener(tail, 0)
        self._watch_tail()

    def end(self) -> None:
        """Keeps the last lines of a process that has ended."""
        if self._printed is None:
            return
        first, lines = self._printed.after(0, whole=False)
        most = KEPT if self._on_lines is None else WATCHED
        self._earlier = (lines if first else self._earlier + lines)[-most:]
        self._before += first + len(lines)
        self._stop()
        self._printed, self._stop = None, _nothing
        if self._on_lines is not None:
            self._on_lines()

    def after(self, position: int, *, whole: bool = True) -> tuple[int, tuple[Line, ...]]:
        """Returns the lines from `position` on that are remembered, and the position of the first of them."""
        first, lines = self._of_process(max(position - self._before, 0), whole=whole)
        missed = self._before - position
        if missed <= 0 or first:
            return self._before + first, lines
        earlier = self._earlier[-missed:]
        return self._before - len(earlier), earlier + lines

    def _of_process(self, position: int, *, whole: bool) -> tuple[int, tuple[Line, ...]]:
        return (0, ()) if self._printed is None else self._printed.after(position, whole=whole)

    def watch(self, on_lines: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_lines` after new lines, until the returned function is called."""
        self._on_lines = on_lines
        self._watch_tail()

        def stop() -> None:
            self._stop()
            self._on_lines, self._stop = None, _nothing

        return stop

    def _watch_tail(self) -> None:
        if self._printed is not None and self._on_lines is not None:
            self._stop = self._printed.watch(self._on_lines)


def _nothing() -> None:
    pass
