"""Polls of one job's stream take turns: one is answered and its cursor moved before the next one reads.

A caller has the whole body before the cursor behind it was stored, and may ask again at once: without turns
it would be given the same chunks twice. A turn that does not end (its caller does not read) is waited for
only so long. Polls that were held together for the same chunk all get it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send

from stoker.control.api.answers import Answer

PATIENCE_S = 1.0
"""More than a commit takes; with the hold of a poll still less than the ten seconds that callers wait."""


@dataclass(frozen=True, slots=True)
class Turns:
    _taken: dict[str, asyncio.Event] = field(default_factory=dict)

    async def wait(self, job: str) -> None:
        """Until no answer with chunks of this job is under way."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (taken := self._taken.get(job)) is not None:
                    await taken.wait()
        except TimeoutError:
            return

    def begin(self, job: str) -> asyncio.Event:
        turn = self._taken[job] = asyncio.Event()
        return turn

    def end(self, job: str, turn: asyncio.Event) -> None:
        turn.set()
        if self._taken.get(job) is turn:
            del self._taken[job]


@dataclass(frozen=True, slots=True)
class AnswerInTurn:
    """The turn lasts until the cursor was moved, or the caller turned out to have left."""

    answer: Answer
    turns: Turns
    job: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turn = self.turns.begin(self.job)
        try:
            await self.answer(scope, receive, send)
        finally:
            self.turns.end(self.job, turn)
