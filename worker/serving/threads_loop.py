"""Serves a synchronous handler with several attempts at once, each on a thread of a bounded pool.

    agent ──run──> thread ──done | failed──>      cancel ──> its attempt, which asks `job.cancelled`
    agent ──stop──> no more runs; returns when the last attempt has ended

The main thread only reads the socket, so a cancel arrives while every handler computes. Each attempt has a
copy of the context that setup left behind, and whatever one raises ends that one. A thread cannot be ended
from outside: an attempt that ignores its cancel is left to the agent's ladder, which takes the process.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from stoker.worker.attempt import Attempt, answer
from stoker.worker.channel import AgentGone, Channel, leave, piece_of
from stoker.worker.frames import Frame, is_large_piece
from stoker.worker.slots import ASKED_AFTER, Slots
from stoker.worker.sync_loop import Call, run_attempt


class ThreadsLoop:
    """The link of its attempts to the agent (see `attempt.Link`)."""

    def __init__(self, channel: Channel, call: Call, slots: Slots, *, aggregate: bool) -> None:
        self._channel = channel
        self._call = call
        self._slots = slots
        self._aggregate = aggregate
        self._context = copy_context()
        self._pool = ThreadPoolExecutor(slots.most)
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._untaken: dict[tuple[str, int, int], threading.Event] = {}
        self._new: list[tuple[Attempt, bytes]] = []
        self._stopped = False
        self._broken: BaseException | None = None
        self._ended = os.eventfd(0, os.EFD_CLOEXEC)
        """An attempt has ended: the main thread may be waiting for the last one."""

    def serve(self) -> None:
        """Returns after a stop and the last attempt. Raises AgentGone."""
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        poller.register(self._ended, select.POLLIN)
        while not (self._stopped and not self._attempts):
            if any(fd == self._ended for fd, _ in poller.poll()):
                os.eventfd_read(self._ended)
            if self._broken is not None:
                raise self._broken
            for frame in self._channel.hear():
                self._take(frame)
            self._begin()
        self._pool.shutdown()
        os.close(self._ended)

    def send(self, frame: Frame) -> None:
        try:
            if frame.kind in ASKED_AFTER:
                self._slots.ask(self.send)
            if is_large_piece(frame):
                self._send_piece(frame)
            else:
                self._channel.send(frame)
        except AgentGone:
            leave()

    hears = True

    def wait(self, done: Callable[[], bool]) -> None:
        """Nothing: the main thread reads."""

    def poll(self) -> None:
        """Nothing: the main thread reads."""

    def _send_piece(self, frame: Frame) -> None:
        """Returns when there is room for the next."""
        taken = self._untaken[piece_of(frame)] = threading.Event()
        self._channel.send(frame)
        taken.wait()

    def _take(self, frame: Frame) -> None:
        if frame.kind == "run" and not self._stopped:
            fields = frame.fields
            attempt = Attempt(fields["job"], fields["attempt"], fields["scratch"], self)
            self._attempts[frame.job, frame.attempt] = attempt
            self._new.append((attempt, frame.body))
        elif frame.kind == "cancel":
            attempt_or_none = self._attempts.get((frame.job, frame.attempt))
            if attempt_or_none is not None:
                attempt_or_none.cancel(str(frame.fields.get("reason", "")))
        elif frame.kind == "took":
            taken = self._untaken.pop(piece_of(frame), None)
            if taken is not None:
                taken.set()
        elif frame.kind in ("fetched", "fetch_failed"):
            answer(self._attempts.get((frame.job, frame.attempt)), frame)
        elif frame.kind == "stop":
            self._stopped = True

    def _begin(self) -> None:
        """After all that came with them: it may be their cancel. The modifier is asked before a job runs."""
        for attempt, body in self._new:
            self._slots.ask(self.send)
            self._pool.submit(self._context.copy().run, self._run, attempt, body)
        self._new.clear()

    def _run(self, attempt: Attempt, body: bytes) -> None:
        threading.current_thread().name = f"job {attempt.job}"
        try:
            run_attempt(self._call, attempt, body, aggregate=self._aggregate)
        except BaseException as error:  # no handler's: `run_attempt` lets none of those pass
            self._broken = error
        finally:
            del self._attempts[attempt.job, attempt.number]
            os.eventfd_write(self._ended, 1)
