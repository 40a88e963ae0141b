"""The shell of the outbox: takes reports from all parts of the agent, and keeps its file up to date.

The session takes batches from here and hands acknowledgements back; `wake` tells it that something may be
there to send. Nothing here waits: a disk that takes seconds must not hold up the ladders of attempts, which
run on the same loop. Only `save` does, for whoever may not go on before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from stoker.agent import outbox, outbox_disk
from stoker.agent.alarm import Alarm
from stoker.agent.seams import OutboxDisk
from stoker.wire.messages import AttemptKey, HeldAttempt, Outcome, Refused, Report, ReportBody

log = logging.getLogger(__name__)


class Reports:
    """`on_pressure(True)` is called when it is full, `on_pressure(False)` when there is room again."""

    def __init__(self, disk: OutboxDisk, on_pressure: Callable[[bool], None]) -> None:
        self._disk = disk
        self._on_pressure = on_pressure
        self._box = outbox.Outbox()
        self._under_pressure = False
        self._saving: outbox.Outbox | None = None  # what is being written beside
        self._save_alarm = Alarm(self._saves)
        self._send_alarm = Alarm(lambda _at: self.wake.set())
        self.wake = asyncio.Event()

    def load(self) -> None:
        """What an earlier life of this agent could not deliver."""
        data = self._disk.load()
        if not data:
            return
        try:
            bodies = outbox_disk.decode(data)
        except (ValueError, KeyError, TypeError) as error:
            log.error("the outbox on disk cannot be read, its reports are lost: %s", error)
            return
        self._box = outbox.reloaded(bodies, self._now())

    def close(self) -> None:
        self._saving = None
        self._save_alarm.set(None)
        self._send_alarm.set(None)

    # -- for the parts that report

    def add(self, body: ReportBody) -> int:
        """Returns the number that it got; for progress, which gets one when it leaves, the next."""
        now = self._now()
        self._box = outbox.add(self._box, body, now)
        self.wake.set()
        if not self._save_alarm.is_set and outbox.durable(body):
            self._save_alarm.set(outbox.disk_at(self._box))
        self._check_pressure()
        return self._box.next - 1

    def drop(self, key: AttemptKey) -> None:
        self._box = outbox.drop(self._box, key)
        self._check_pressure()

    def reporting(self) -> tuple[HeldAttempt, ...]:
        """Attempts whose outcome waits here, or that they are given back, also those of an earlier life. One
        that was left out would be taken for lost, and count."""
        bodies = (item.body for item in self._box.items)
        return tuple(
            HeldAttempt(body.job, body.attempt, body.worker if isinstance(body, Outcome) else "", "reporting")
            for body in bodies
            if isinstance(body, Outcome | Refused)
        )

    # -- for the session

    def reconnected(self) -> int:
        """Everything is to be sent again; returns the number of the oldest report held."""
        self._box = outbox.reconnected(self._box)
        self.wake.set()
        return outbox.first_unacked(self._box)

    def take(self) -> tuple[Report, ...]:
        self._box, batch = outbox.take(self._box, self._now())
        if not batch and self._box.progress:
            self._send_alarm.set(outbox.wake_at(self._box))
        return batch

    def ack(self, number: int) -> None:
        self._box = outbox.ack(self._box, number)
        if not self._save_alarm.is_set and outbox.is_stale(self._box):
            self._save_alarm.set(outbox.disk_at(self._box))
        self._check_pressure()

    @property
    def empty(self) -> bool:
        return not self._box.items

    # -- the disk

    def save(self) -> None:
        """Now, if anything is not on disk yet that should be."""
        if not outbox.has_unsaved(self._box) and not outbox.is_stale(self._box):
            return
        try:
            self._disk.save(outbox_disk.encode(outbox.to_save(self._box)))
        except OSError as error:
            self._not_saved(error)
        else:
            self._box = outbox.saved(self._box, self._now())
        self._saving = None  # what is there now is newer
        self._save_alarm.set(outbox.disk_at(self._box))

    def _saves(self, at: float) -> None:
        if self._saving is not None:
            return
        if outbox.due_for_disk(self._box, at):
            box = self._saving = self._box
            self._disk.save_soon(
                lambda: outbox_disk.encode(outbox.to_save(box)), partial(self._is_saved, box)
            )
        else:
            self._save_alarm.set(outbox.disk_at(self._box))

    def _is_saved(self, box: outbox.Outbox, error: Exception | None) -> None:
        """What has come since then is not on disk yet."""
        if self._saving is not box:
            return
        self._saving, now = None, self._now()
        if error is not None:
            self._not_saved(error)
        else:
            self._box = replace(self._box, saved=outbox.saved(box, now).saved, saved_at=now)
        self._save_alarm.set(outbox.disk_at(self._box))

    def _not_saved(self, error: Exception) -> None:
        log.error("the outbox cannot be written, its reports are in memory only: %s", error)
        self._box = replace(self._box, saved_at=self._now())

    def _check_pressure(self) -> None:
        if not self._under_pressure and outbox.must_pause(self._box):
            log.warning("the outbox is full: no worker is read until control acknowledges")
            self._under_pressure = True
            self._on_pressure(True)
        elif self._under_pressure and outbox.may_resume(self._box):
            self._under_pressure = False
            self._on_pressure(False)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
