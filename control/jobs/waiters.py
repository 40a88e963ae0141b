"""The waiters for jobs, and the consequences of a job's change. The end of a job comes with its view.

Nothing is stored here. A waiter registers first and reads the store afterwards, so it misses nothing; to wake
a job without waiters does nothing. `JobChanges` wakes them once a change is committed, has the attempt
stopped that must not go on, and checks the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from stoker.control.errors import NotFound, UncertainCommit
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import Changed, Claimed, JobView
from stoker.control.scheduling.dispatch import Dispatch
from stoker.control.traces.traces import Traces
from stoker.wire.messages import Cancel


class JobWaiters:
    """The waiters for the ends and changes of jobs. `closed`: the process is about to end, and new waits end
    at once."""

    def __init__(self) -> None:
        self.closed = False
        self._ends: dict[str, list[asyncio.Future[JobView]]] = {}
        self._changes: dict[str, list[asyncio.Event]] = {}

    @contextmanager
    def end_of(self, job: str) -> Iterator[asyncio.Future[JobView]]:
        """Yields a future of the job's terminal view."""
        future: asyncio.Future[JobView] = asyncio.get_running_loop().create_future()
        waiting = self._ends.setdefault(job, [])
        waiting.append(future)
        if self.closed:
            future.set_exception(_stopping())
        try:
            yield future
        finally:
            waiting.remove(future)
            if not waiting:
                del self._ends[job]
            if future.done() and not future.cancelled():
                future.exception()  # marks it as retrieved, where it was not awaited

    @contextmanager
    def changes_of(self, job: str) -> Iterator[asyncio.Event]:
        """Yields an event that is set at every change; the waiter clears the event before it reads."""
        event = asyncio.Event()
        waiting = self._changes.setdefault(job, [])
        waiting.append(event)
        try:
            yield event
        finally:
            waiting.remove(event)
            if not waiting:
                del self._changes[job]

    def changed(self, job: str, ended: JobView | None = None) -> None:
        """Wakes who waits for a change of the job; with its terminal view, who waits for its end, too."""
        if ended is not None:
            for future in self._ends.get(job, ()):
                if not future.done():
                    future.set_result(ended)
        for event in self._changes.get(job, ()):
            event.set()

    def gone(self, job: str, error: Exception) -> None:
        """Ends the waits for a job whose record was deleted: no end of the job will be reported."""
        for future in self._ends.get(job, ()):
            if not future.done():
                future.set_exception(error)
        self.changed(job)

    def uncertain_commit(self, error: Exception) -> None:
        """Makes everyone who waits for a job read it again, since it is unknown which ends were stored."""
        for futures in self._ends.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
        for job in self._changes:
            self.changed(job)

    def close(self) -> None:
        """Ends all waits: everyone who waits reads the job once more and returns what there is."""
        self.closed = True
        self.uncertain_commit(_stopping())


def _stopping() -> UncertainCommit:
    return UncertainCommit("the service is stopping; ask again")


class JobChanges:
    """The consequences of committed changes. `cancel` stops an attempt on its node; `count` counts a change;
    `webhook_due` is set when a job ended that has a webhook."""

    def __init__(
        self,
        waiters: JobWaiters,
        dispatch: Dispatch,
        cancel: Callable[[str, Cancel], None],
        count: Callable[[Changed], None],
        traces: Traces | None = None,
    ) -> None:
        self._traces, self._waiters, self._dispatch = traces, waiters, dispatch
        self._cancel, self._count = cancel, count
        self.webhook_due = asyncio.Event()

    def take_back(self, claimed: Iterable[Claimed]) -> None:
        """Stops attempts of jobs that are not stored after all. Their nodes free the slots."""
        for job in claimed:
            self._cancel(job.node, Cancel(job.job, job.attempt, "its job could not be stored"))

    def apply(self, changed: Iterable[Changed]) -> None:
        """Acts on changes of jobs. To be called once the changes are committed."""
        for change in changed:
            self._count(change)
            if self._traces is not None:
                self._traces.changed(change)
            if change.gone:
                self._waiters.gone(change.job, NotFound(f"job {change.job}: its time has passed"))
            else:
                self._waiters.changed(change.job, change.view)
            if change.view is not None and change.view.webhook is not None:
                self.webhook_due.set()
            if change.state is JobState.IN_QUEUE:
                self._dispatch.mark(change.endpoint)
            if change.cancel is not None:
                node, key = change.cancel
                why = "expired" if change.gone else "cancelled"
                self._cancel(node, Cancel(key.job, key.attempt, why))
