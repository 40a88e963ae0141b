"""Polls of one job's stream take turns: one is answered and its cursor moved before the next one reads.

A caller has the whole body before the cursor behind it was stored, and may ask again at once: without turns
it would receive the same chunks twice. An answer that its caller does not read is waited for with a limit;
one that it has, until the store has its cursor. Polls that were held together for the same chunk all get it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from msgspec import Struct, field
from starlette.types import Receive, Scope, Send

from stoker.control.http.calls.answers import Answer, OwnResponse

PATIENCE_S = 1.0
"""With the hold of a poll still less than the ten seconds that callers wait."""


class Turn(Struct, eq=False):
    """The turn of one call. `written`: the caller has the whole body."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    written: bool = False

    async def ended(self) -> bool:
        """Waits for its end; False where the caller does not read."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.over.wait()
        except TimeoutError:
            if not self.written:
                return False
            await self.over.wait()  # the store is slow; if it is down, the move raises
        return True


class Turns(Struct, frozen=True):
    _taken: dict[str, Turn] = field(default_factory=dict)

    async def wait(self, job: str) -> None:
        """Waits until no answer with chunks of this job is under way."""
        while (turn := self._taken.get(job)) is not None and await turn.ended():
            pass

    def begin(self, job: str) -> Turn:
        turn = self._taken[job] = Turn()
        return turn

    def end(self, job: str, turn: Turn) -> None:
        turn.over.set()
        if self._taken.get(job) is turn:
            del self._taken[job]


@dataclass(slots=True)
class AnswerInTurn(OwnResponse):
    """The turn lasts until the cursor was moved, or the caller turned out to have left."""

    answer: Answer
    turns: Turns
    job: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turn, move = self.turns.begin(self.job), self.answer.after
        assert move is not None

        async def after() -> None:
            turn.written = True
            await move()

        try:
            await replace(self.answer, after=after)(scope, receive, send)
        finally:
            self.turns.end(self.job, turn)
