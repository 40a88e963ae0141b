"""Callers that send no request twice, and count each that fails: what a restart costs the simplest program.

Some keep their connection, some make one for each request, and some wait for a job that does not end: an
answer before its end is none of a failure, and they ask again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.system.stack import Stack

UNLIMITED = "[rate_limits]\nrequests_per_worker = 1000000\n"
"""For the configuration of their control: on a fast machine they are faster than the limit allows."""

TIMEOUT_S = 60.0
WAIT_MS = 50_000
NOT_KEPT = httpx2.Limits(max_keepalive_connections=0)


@dataclass
class Counted:
    """What has come of the requests. Times are in seconds."""

    answered: int = 0
    failed: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    """The longest time of a request that does not wait for a job."""
    waits: int = 0
    """The answers to those that do."""
    accepted: dict[str, int] = field(default_factory=dict)
    """The jobs, each with its number, which is its input."""


class ImpatientCallers:
    """Callers of the endpoint `echo`, and of a job of another endpoint; they call from the beginning of the
    block to its end."""

    def __init__(self, stack: Stack, count: int, endless: tuple[str, str]) -> None:
        self.counted = Counted()
        self._base = {
            "base_url": f"{stack.facts['http']}/v2",
            "headers": {"Authorization": f"Bearer {stack.key}"},
            "timeout": TIMEOUT_S,
            "trust_env": False,
        }
        self._count, self._endless = count, endless
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._call()))

    def __enter__(self) -> Counted:
        self._thread.start()
        return self.counted

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _call(self) -> None:
        waiting = asyncio.create_task(self._gathered(self._wait()))
        async with asyncio.TaskGroup() as calling:
            for number in range(self._count):
                calling.create_task(self._submit(keeps=number % 2 == 0))
        waiting.cancel()
        await asyncio.wait([waiting])

    async def _gathered(self, *waits: Any) -> None:
        async with asyncio.TaskGroup() as tasks:
            for wait in waits:
                tasks.create_task(wait)

    async def _submit(self, *, keeps: bool) -> None:
        limits = {} if keeps else {"limits": NOT_KEPT}
        async with httpx2.AsyncClient(**self._base, **limits) as http:
            while not self._over.is_set():
                number = self.counted.answered
                began = time.monotonic()
                found = await self._answer(http.post("/echo/run", json={"input": {"n": number}}))
                self.counted.longest_s = max(self.counted.longest_s, time.monotonic() - began)
                if found is not None:
                    self.counted.answered += 1
                    self.counted.accepted[found["id"]] = number

    async def _wait(self) -> None:
        endpoint, job = self._endless
        async with httpx2.AsyncClient(**self._base) as http:
            while True:
                if await self._answer(http.get(f"/{endpoint}/status-sync/{job}?wait={WAIT_MS}")) is not None:
                    self.counted.waits += 1

    async def _answer(self, sending: Any) -> dict[str, Any] | None:
        try:
            answer = await sending
        except httpx2.TransportError as error:
            self.counted.failed.append(repr(error))
            return None
        if answer.status_code == 200:
            return dict(answer.json())
        self.counted.failed.append(f"{answer.status_code} {answer.text}")
        return None
