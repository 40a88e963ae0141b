"""Who waits for what about a job: ends carry the job's view, any change just rings.

A bell holds no truth. Whoever waits registers first and reads the store after, so nothing is missed; and
whoever rings for nobody loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from stoker.control.errors import InDoubt
from stoker.control.types import JobView

T = TypeVar("T")


class Bells:
    """`closed`: the process is about to end, and nobody is held any more."""

    def __init__(self) -> None:
        self.closed = False
        self._ends: dict[str, list[asyncio.Future[JobView]]] = {}
        self._changes: dict[str, list[asyncio.Event]] = {}

    def waits_for_end(self, job: str) -> bool:
        """Safe from any thread: the writer asks whether to read the view in its own transaction."""
        return job in self._ends

    @contextmanager
    def end_of(self, job: str) -> Iterator[asyncio.Future[JobView]]:
        """A future of the job's terminal view."""
        future: asyncio.Future[JobView] = asyncio.get_running_loop().create_future()
        self._ends.setdefault(job, []).append(future)
        if self.closed:
            future.set_exception(_stopping())
        try:
            yield future
        finally:
            _drop(self._ends, job, future)
            if future.done() and not future.cancelled():
                future.exception()  # whoever did not wait for it has not missed anything

    @contextmanager
    def changes_of(self, job: str) -> Iterator[asyncio.Event]:
        """An event that is set at every change; the waiter clears it before it reads."""
        event = asyncio.Event()
        self._changes.setdefault(job, []).append(event)
        try:
            yield event
        finally:
            _drop(self._changes, job, event)

    def changed(self, job: str) -> None:
        for event in self._changes.get(job, ()):
            event.set()

    def gone(self, job: str, error: Exception) -> None:
        """The record was deleted: nobody will hear of an end."""
        for future in self._ends.get(job, ()):
            if not future.done():
                future.set_exception(error)
        self.changed(job)

    def doubt(self, error: Exception) -> None:
        """What ends were stored is not known here: whoever waits for any job has to read it again."""
        for futures in self._ends.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        for job in self._changes:
            self.changed(job)

    def close(self) -> None:
        """Whoever waits looks once more, and takes what there is."""
        self.closed = True
        self.doubt(_stopping())

    def ended(self, view: JobView) -> None:
        for future in self._ends.get(view.id, ()):
            if not future.done():
                future.set_result(view)
        self.changed(view.id)


def _stopping() -> InDoubt:
    return InDoubt("the service is stopping; ask again")


def _drop(table: dict[str, list[T]], job: str, item: T) -> None:
    waiting = table[job]
    waiting.remove(item)
    if not waiting:
        del table[job]
