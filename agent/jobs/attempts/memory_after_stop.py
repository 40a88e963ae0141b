"""Delays the end of a stopped job until its worker has freed the job's device memory.

A handler that was stopped may leave tensors behind, and the next job would fail for lack of memory. The time
until SIGTERM runs on: a worker whose memory is not free in time counts as not stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from stoker.agent import worker_frames
from stoker.agent.alarm import loop_time
from stoker.agent.host.devices.watch import DeviceWatch
from stoker.agent.jobs.attempts.running_attempt import RunningAttempt
from stoker.agent.jobs.attempts.states import Cancelling
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.wire.messages import AttemptKey

MEASURE_FIRST_S, MEASURE_LONGEST_S = 0.01, 0.2
"""The shortest and the longest time between two measurements; each is twice as long as the one before."""

JobEnd: TypeAlias = worker_frames.Done | worker_frames.Failed


class MemoryAfterStop:
    """The measurement of what a stopped job left in its device's memory. `attempts` are the node's.
    `on_message` is called with the delayed end of a job."""

    def __init__(
        self,
        attempts: Mapping[AttemptKey, RunningAttempt],
        memory: DeviceWatch[Worker],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        on_message: Callable[[Worker, JobEnd], None],
    ) -> None:
        self._attempts, self._memory, self._spawn = attempts, memory, spawn
        self._on_message = on_message

    def must_be_measured(self, attempt: RunningAttempt) -> bool:
        """Returns whether the worker's memory must be measured; False for an attempt whose end was delayed
        already."""
        worker = attempt.worker
        if any(self._attempts[key].sent_ahead for key in worker.waiting):
            return False  # it was not withdrawn: it has begun, and takes memory
        return attempt.unclean is None and self._memory.checks(worker, worker.spec.devices)

    def delay_end(self, attempt: RunningAttempt, message: JobEnd) -> None:
        attempt.ended, attempt.unclean = attempt.ended or loop_time(), ""
        self._spawn(self._when_free(attempt, message), f"memory after {attempt.assign.job}")

    async def _when_free(self, attempt: RunningAttempt, message: JobEnd) -> None:
        wait_s = MEASURE_FIRST_S
        while isinstance(attempt.state, Cancelling):
            devices = attempt.worker.spec.devices
            attempt.unclean = await self._memory.unclean(attempt.worker.name, devices)
            if not attempt.unclean:
                self._on_message(attempt.worker, message)
                return
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MEASURE_LONGEST_S)
