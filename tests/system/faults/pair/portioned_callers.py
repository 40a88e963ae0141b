"""Callers that submit jobs in portions, each job until it is accepted, and note what each call got."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from stoker.client import AsyncClient, ClientError

CALLERS = 8
TIMEOUT_S = 4.0
AGAIN_S = 0.05
ACCEPTED = "accepted"

Answer = tuple[float, str]
"""The moment of an answer, by the monotonic clock in seconds, and what it was: `ACCEPTED`, a status, or the
name of an error."""


class PortionedCallers:
    """Calls of several callers who share a client. `inputs` are the jobs, in the order of their numbers."""

    def __init__(self, addresses: str, key: str, endpoint: str, inputs: Iterable[dict[str, Any]]) -> None:
        self.accepted: dict[str, int] = {}
        self.answers: list[Answer] = []
        self._client = AsyncClient(addresses, key, timeout_s=TIMEOUT_S, resends=0)
        self._endpoint, self._left = endpoint, iter(enumerate(inputs))
        self._may, self._closed = asyncio.Semaphore(0), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def let(self, jobs: int) -> None:
        """Lets them submit so many more."""
        for _ in range(jobs):
            self._loop.call_soon_threadsafe(self._may.release)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closed.set)
        self.let(CALLERS)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._call())

    async def _call(self) -> None:
        async with self._client, asyncio.TaskGroup() as tasks:
            for _ in range(CALLERS):
                tasks.create_task(self._submit_all())

    async def _submit_all(self) -> None:
        while (job := await self._next()) is not None:
            number, job_input = job
            while not self._closed.is_set() and not await self._submitted(number, job_input):
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_S):
                        await self._closed.wait()

    async def _next(self) -> tuple[int, dict[str, Any]] | None:
        await self._may.acquire()
        return None if self._closed.is_set() else next(self._left, None)

    async def _submitted(self, number: int, job_input: dict[str, Any]) -> bool:
        try:
            job = await self._client.run(self._endpoint, job_input, idempotency_key=f"job-{number}")
        except ClientError as error:
            self.answers.append((time.monotonic(), str(getattr(error, "status", type(error).__name__))))
            return False
        self.answers.append((time.monotonic(), ACCEPTED))
        self.accepted[job.id] = number
        return True


def longest_gap(answers: Iterable[Answer], since: float) -> float:
    """Returns the longest time in which no call was accepted, from a moment on."""
    accepted = [at for at, what in answers if what == ACCEPTED and at >= since]
    return max((later - earlier for earlier, later in pairwise([since, *accepted])), default=0.0)


def seen_for(answers: Iterable[Answer], since: float, what: str) -> float:
    """Returns the time from the first such answer to the last one, from a moment on."""
    found = [at for at, got in answers if got == what and at >= since]
    return max(found) - min(found) if found else 0.0
