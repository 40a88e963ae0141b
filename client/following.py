"""A job's events over broken connections: where to resume, which events are new, when to give up. Pure.

    call ──> opened ──> feed ... feed ──> the event `end`: done
     ^          │
     └─ pause ──┴── broken (cut off, silent, ended early, refused for a time)

Gives up if connections break one after the other without a new event. Sends and reads nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from stoker.client import calls
from stoker.client.calls import Call
from stoker.client.errors import ClientError, Unreachable
from stoker.client.records import Event
from stoker.client.retries import PAUSES_S, Pause, pause_before_resend
from stoker.client.sse import EventReader, RawEvent

SILENCE_S = 60.0
"""A connection that sends nothing for this time is dead: the service sends a comment every 15 s."""

STEADY_S = 10.0
"""After a connection that lasted this long, the count of breaks starts again."""

UNNAMED = "message"
"""The kind of the events of a pod's log, whose stream names none."""

_ID = re.compile(r"(?:(\d+)-|[\d:TZ.-]+/)(-?\d+)", re.ASCII)


class Following:
    """The state of following one job, or the log of a worker or a pod, whose name is the `job` then.
    `make_call` makes a call of `calls` that is answered with events."""

    def __init__(
        self,
        endpoint: str,
        job: str,
        after: str | None,
        allowed: int,
        make_call: Callable[[str, str, str | None], Call[None]] = calls.events,
    ) -> None:
        self.done = False
        self._make_call = make_call
        self._endpoint, self._job = endpoint, job
        self._after = after
        self._progress: str | None = None
        self._breaks, self._allowed = 0, allowed
        self._opened_at: float | None = None
        self._reader = EventReader()

    def call(self) -> Call[None]:
        return self._make_call(self._endpoint, self._job, self._after)

    def opened(self, now: float) -> None:
        """Notes that a connection is open. After the first one, the job is known to exist: every break is
        followed by a pause."""
        self._opened_at, self._allowed = now, len(PAUSES_S)
        self._reader = EventReader()

    def feed(self, data: bytes) -> Iterator[Event]:
        for raw in self._reader.feed(data):
            if self._known(raw):
                continue
            self.done = self.done or raw.kind == "end"
            kind = "log" if raw.kind == UNNAMED else raw.kind
            yield Event(kind, raw.id, calls.read_json(raw.data))

    def broken(self, error: ClientError | None, now: float) -> Pause:
        """Returns the pause before the next connection. Raises the error if the client must not connect
        again."""
        if self._opened_at is not None and now - self._opened_at >= STEADY_S:
            self._breaks = 0
        self._opened_at = None
        problem = error or Unreachable(f"the events of {self._job} broke off before its end")
        pause = pause_before_resend(problem, self._breaks, self._allowed)
        if pause is None:
            raise problem
        self._breaks += 1
        return pause

    def _known(self, raw: RawEvent) -> bool:
        """Returns whether the event was returned before, and remembers a new one. Progress has no id, so its
        value is compared."""
        if raw.kind == "progress":
            known, self._progress = raw.data == self._progress, raw.data
            return known
        if raw.kind not in ("chunk", "log", UNNAMED, "skipped", "reset"):
            return False
        if _order(raw.id) <= _order(self._after or ""):
            return True
        self._after, self._breaks = raw.id, 0
        if raw.kind == "reset":
            self._progress = None
        return False


def _order(event: str) -> tuple[int, int]:
    """Returns `2-14` as (2, 14), and `2026-11-22T08:00:00.123000000Z/17`, as of a pod's log, as (0, 17).
    Attempts count from 1; the number -1 is the reset that begins an attempt."""
    found = _ID.fullmatch(event)
    if found is None:
        if event:
            raise ClientError(f"the id of an event must be attempt-number; got {event!r}")
        return (0, -1)
    return int(found[1] or 0), int(found[2])
