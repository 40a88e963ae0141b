"""The loop of a synchronous handler with several attempts at once, each on a thread of a bounded pool.

    agent ──run──> thread ──done | failed──>      cancel ──> its attempt, which reads `job.cancelled`
    agent ──stop──> no more runs; returns when the last attempt has ended

The main thread only reads the socket, so a cancel arrives while every handler computes. Each attempt has a
copy of the context that setup left behind, and an exception ends its own attempt alone. A thread cannot be
ended from outside: if an attempt ignores its cancel, the agent ends the process.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from stoker.worker.between_jobs.process_state import ProcessState
from stoker.worker.errors import clean
from stoker.worker.frames import Frame, waits_for_took
from stoker.worker.job.attempt import ANSWERS, Attempt, pass_answer
from stoker.worker.serving.channel import AgentGone, Channel, ChunkKey, chunk_key, leave
from stoker.worker.serving.slots import ENDS, Slots
from stoker.worker.serving.sync_loop import TOLD, Call, run_attempt, tell


class ThreadsLoop:
    """The `Link` of its attempts."""

    def __init__(self, channel: Channel, call: Call, slots: Slots, *, aggregate: bool) -> None:
        self._channel, self._call, self._slots = channel, call, slots
        self._aggregate = aggregate
        self._context = copy_context()
        self._process = ProcessState()
        self._pool = ThreadPoolExecutor(slots.most)
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._untaken: dict[ChunkKey, threading.Event] = {}
        self._new: list[Attempt] = []
        self._stopped = False
        self._broken: BaseException | None = None
        self._ended = os.eventfd(0, os.EFD_CLOEXEC)
        """Written when an attempt has ended: the main thread may be waiting for the last one."""

    def serve(self) -> None:
        """Returns after a stop and the last attempt. Raises AgentGone."""
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        poller.register(self._ended, select.POLLIN)
        while not (self._stopped and not self._attempts):
            if any(fd == self._ended for fd, _ in poller.poll()):
                os.eventfd_read(self._ended)
                self._put_back()
            if self._broken is not None:
                raise self._broken
            for frame in self._channel.receive_now():
                self._take(frame)
            self._begin()
        self._pool.shutdown()
        os.close(self._ended)

    def send(self, frame: Frame) -> None:
        try:
            if frame.kind in ENDS:
                self._slots.modify(self.send)
            if waits_for_took(frame):
                self._send_large_chunk(frame)
            else:
                self._channel.send(frame)
        except AgentGone:
            leave()

    receives_in_background = True

    def wait(self, done: Callable[[], bool]) -> None:
        """Does nothing: the main thread reads."""

    def poll(self) -> None:
        """Does nothing: the main thread reads."""

    def _send_large_chunk(self, frame: Frame) -> None:
        """Returns when the agent has room for the next chunk."""
        taken = self._untaken[chunk_key(frame)] = threading.Event()
        self._channel.send(frame)
        taken.wait()

    def _put_back(self) -> None:
        """Puts back only while no job runs: what one job changed, another may be using."""
        if why := self._process.open_files.excess() if self._attempts else self._process.put_back():
            self.send(Frame("retire", {"reason": clean(why)}))

    def _take(self, frame: Frame) -> None:
        if frame.kind == "run" and not self._stopped:
            attempt = Attempt(frame, self)
            self._attempts[frame.job, frame.attempt] = attempt
            self._new.append(attempt)
        elif frame.kind in TOLD:
            tell(self._attempts.get((frame.job, frame.attempt)), frame)
        elif frame.kind == "took":
            taken = self._untaken.pop(chunk_key(frame), None)
            if taken is not None:
                taken.set()
        elif frame.kind in ANSWERS:
            pass_answer(self._attempts.get((frame.job, frame.attempt)), frame)
        elif frame.kind == "stop":
            self._stopped = True

    def _begin(self) -> None:
        """Starts the new jobs, after all that arrived with them: one frame may be a cancel. Calls the
        modifier before each."""
        for attempt in self._new:
            self._slots.modify(self.send)
            self._pool.submit(self._context.copy().run, self._run, attempt)
        self._new.clear()

    def _run(self, attempt: Attempt) -> None:
        threading.current_thread().name = f"job {attempt.job}"
        try:
            run_attempt(self._call, attempt, aggregate=self._aggregate)
        except BaseException as error:  # not the handler's: `run_attempt` handles those
            self._broken = error
        finally:
            del self._attempts[attempt.job, attempt.number]
            os.eventfd_write(self._ended, 1)
