"""The attempts that wait for their worker while it runs another one.

    assigned ──> waiting, in order ──the one before has left──> its turn
                    |  '── the first of them are in the worker's socket (`agent.workers.lifecycle.runs_ahead`)
                    '── handed back, uncounted: the one before takes over PATIENCE_S, or is stopped;
                        or the worker takes nothing new

So a worker need not wait for its next job: two messages take longer than a short job. Control decides how
many wait (`control.rules.queueing.ahead`), here they are kept from waiting for long: a free worker may be
next to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stoker.agent.alarm import Alarm, loop_time
from stoker.agent.jobs.attempts import events as ev
from stoker.agent.jobs.attempts.running_attempt import RunningAttempt
from stoker.agent.jobs.attempts.states import Running
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.wire.messages import AttemptKey

PATIENCE_S = 0.05
"""How long an attempt runs before those that wait behind it are handed back."""

INPUT_MAX = 16 * 1024
"""Bytes of an input that is sent ahead: it fills the socket, through which a cancel must pass."""


class WaitingAttempts:
    """The attempts that wait for their turn at a worker. `attempts` are the node's, `step` passes an event to
    the machine of one. `prepare` makes sure that it has a scratch folder, or returns why there is none."""

    def __init__(
        self,
        attempts: Mapping[AttemptKey, RunningAttempt],
        step: Callable[[RunningAttempt, ev.Event], None],
        prepare: Callable[[RunningAttempt], str],
    ) -> None:
        self._attempts = attempts
        self._step = step
        self._prepare = prepare
        self._alarms: dict[Worker, Alarm] = {}

    def add(self, worker: Worker) -> None:
        """Adds another attempt that waits for the worker."""
        self._fill(worker)
        if worker not in self._alarms:
            self._alarms[worker] = Alarm(lambda at: self._look(worker, at))
            self._alarms[worker].set(worker.occupied_at + PATIENCE_S)

    def next(self, key: AttemptKey) -> None:
        """Gives the attempt its worker's slot, which is now free."""
        attempt = self._attempts[key]
        if why := self._prepare(attempt):
            self._step(attempt, ev.HandBack(loop_time(), why))
            return
        self._step(attempt, ev.Next(loop_time()))
        self._fill(attempt.worker)

    def hand_back(self, worker: Worker, why: str) -> None:
        """Hands back the attempts that wait for the worker, except those that it has begun already."""
        self.withdraw(worker)
        for key in list(worker.waiting):
            self._step(self._attempts[key], ev.HandBack(loop_time(), why))

    def withdraw(self, worker: Worker) -> None:
        for key in worker.withdraw():
            if (attempt := self._attempts.get(key)) is not None:
                self._step(attempt, ev.Withdrawn(loop_time()))

    def discard(self) -> None:
        """Stops the timers when the agent ends."""
        for alarm in self._alarms.values():
            alarm.set(None)

    def _look(self, worker: Worker, at: float) -> None:
        if at >= worker.occupied_at + PATIENCE_S:
            self.hand_back(worker, f"the job before it takes longer than {PATIENCE_S * 1000:g} ms")
        if worker.waiting:
            due = worker.occupied_at + PATIENCE_S
            self._alarms[worker].set(due if due > at else at + PATIENCE_S)
        else:
            del self._alarms[worker]

    def _fill(self, worker: Worker) -> None:
        """Puts the first that wait into the socket, behind one that is there or has begun."""
        room = worker.room_ahead
        if not room or loop_time() >= worker.occupied_at + PATIENCE_S:
            return
        if not all(isinstance(self._attempts[key].state, Running) for key in worker.running):
            return
        for key in list(worker.waiting):
            attempt = self._attempts[key]
            if attempt.sent_ahead:
                continue
            if not room or not _may_lie_in_the_socket(attempt) or self._prepare(attempt):
                return
            self._step(attempt, ev.RoomAhead(loop_time()))
            if worker.room_ahead >= room:  # it could not be sent, and nothing may overtake it
                return
            room -= 1


def _may_lie_in_the_socket(attempt: RunningAttempt) -> bool:
    """Returns whether the run may be in the socket before its turn: nothing large, and no secrets."""
    assign = attempt.assign
    return attempt.input is not None and len(attempt.input) <= INPUT_MAX and assign.files_grant is None
