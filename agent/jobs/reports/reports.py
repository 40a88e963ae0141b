"""The shell of the outbox: takes reports from all parts of the agent, and keeps its file up to date.

The session takes batches from here, and passes acknowledgements back; `wake` is set when there may be
something to send. Only `save` waits for the disk: elsewhere a slow disk must not delay the attempts, which
run on the same loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from stoker.agent.alarm import Alarm
from stoker.agent.interfaces import OutboxDisk
from stoker.agent.jobs.reports import outbox, outbox_file
from stoker.wire.messages import AttemptKey, HeldAttempt, Outcome, Progress, Refused, Report, ReportBody

log = logging.getLogger(__name__)


class Reports:
    """Calls `on_pressure(True)` when it is full, and `on_pressure(False)` when there is room again. `wake` is
    shared with whatever else the session sends. `saves`: control takes saves."""

    def __init__(
        self, disk: OutboxDisk, on_pressure: Callable[[bool], None], wake: asyncio.Event | None = None
    ) -> None:
        self._disk = disk
        self._on_pressure = on_pressure
        self._time = asyncio.get_running_loop().time
        self._box = outbox.Outbox()
        self._under_pressure = False
        self._unsaved_because = ""
        self._saving: outbox.Outbox | None = None  # what a thread is writing
        self._save_alarm = Alarm(self._saves)
        self._send_alarm = Alarm(lambda _at: self.wake.set())
        self.wake = wake or asyncio.Event()
        self.saves = True

    def load(self) -> None:
        """Loads what an earlier process of this agent could not deliver."""
        data = self._disk.load()
        if not data:
            return
        try:
            bodies = outbox_file.decode(data)
        except (ValueError, KeyError, TypeError) as error:
            log.error("the outbox on disk cannot be read, its reports are lost: %s", error)
            return
        self._box = outbox.reloaded(bodies, self._time())

    def close(self) -> None:
        self._saving = None
        self._save_alarm.set(None)
        self._send_alarm.set(None)

    # -- for the parts that report

    def add(self, body: ReportBody) -> int:
        """Returns its number; for progress, which is numbered when it is sent, the last number."""
        if isinstance(body, Progress):
            self._box = outbox.add_progress(self._box, body, self._time())
        else:
            self._box = outbox.add(self._box, body, self._time())
        self.wake.set()
        if self._save_alarm.at is None and outbox.durable(body):
            self._save_alarm.set(outbox.disk_at(self._box))
        if self._box.full and not self._under_pressure:
            log.warning("the outbox is full: no worker is read until control acknowledges")
            self._under_pressure = True
            self._on_pressure(True)
        return self._box.next - 1

    def drop(self, key: AttemptKey) -> None:
        self._box = outbox.drop(self._box, key)
        self._relieve()

    def reporting(self) -> tuple[HeldAttempt, ...]:
        """Attempts whose outcome, or return, waits here, including those of an earlier process. Control takes
        an attempt that is left out for lost, and counts it."""
        bodies = (item.body for item in self._box.items)
        return tuple(
            HeldAttempt(body.job, body.attempt, body.worker if isinstance(body, Outcome) else "", "reporting")
            for body in bodies
            if isinstance(body, Outcome | Refused)
        )

    # -- for the session

    def reconnected(self) -> int:
        """Sends everything again; returns the number of the oldest report that is held."""
        self._box = outbox.reconnected(self._box)
        self.wake.set()
        return outbox.first_unacked(self._box)

    def welcomed(self, *, saves: bool) -> None:
        self.saves = saves
        if not saves:
            self._box = outbox.without_saves(self._box)
            self._relieve()  # there may be nothing left that control acknowledges

    def take(self) -> tuple[Report, ...]:
        self._box, batch = outbox.take(self._box, self._time())
        if not batch and self._box.progress:
            self._send_alarm.set(outbox.wake_at(self._box))
        return batch

    def ack(self, number: int) -> None:
        self._box = outbox.ack(self._box, number)
        if self._save_alarm.at is None and outbox.is_stale(self._box):
            self._save_alarm.set(outbox.disk_at(self._box))
        self._relieve()

    @property
    def empty(self) -> bool:
        return not self._box.items

    @property
    def unsent(self) -> int:
        """Returns how many reports control has not acknowledged."""
        return len(self._box.items)

    # -- the disk

    def save(self) -> None:
        """Writes the file now, unless it is up to date."""
        if not outbox.has_unsaved(self._box) and not outbox.is_stale(self._box):
            return
        try:
            self._disk.save(outbox_file.encode(outbox.to_save(self._box)))
        except OSError as error:
            self._not_saved(error)
        else:
            self._box = outbox.saved(self._box, self._time())
            self._unsaved_because = ""
        self._saving = None  # the file is newer than that
        self._save_alarm.set(outbox.disk_at(self._box))

    def _saves(self, at: float) -> None:
        if self._saving is not None:
            return
        if outbox.due_for_disk(self._box, at):
            box = self._saving = self._box
            self._disk.save_soon(
                lambda: outbox_file.encode(outbox.to_save(box)), partial(self._is_saved, box)
            )
        else:
            self._save_alarm.set(outbox.disk_at(self._box))

    def _is_saved(self, box: outbox.Outbox, error: Exception | None) -> None:
        """Notes that `box` is on disk, or why not; reports that were added since then are not."""
        if self._saving is not box:
            return
        self._saving, now = None, self._time()
        if error is not None:
            self._not_saved(error)
        else:
            self._box = replace(self._box, saved=outbox.saved(box, now).saved, saved_at=now)
            self._unsaved_because = ""
        self._save_alarm.set(outbox.disk_at(self._box))

    def _not_saved(self, error: Exception) -> None:
        if self._unsaved_because != (why := str(error)):  # it is tried again every second
            log.error("the outbox cannot be written, its reports are in memory only: %s", why)
        self._unsaved_because = why
        self._box = replace(self._box, saved_at=self._time())

    def _relieve(self) -> None:
        """Reads the workers again once there is room."""
        if self._under_pressure and not self._box.full:
            self._under_pressure = False
            self._on_pressure(False)
