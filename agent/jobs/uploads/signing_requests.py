"""Has control sign requests to the platform's object store, over the session.

    sign ── SignAsk ──> (waits for a session) ──> control: may this node write that now? ──> signed requests
                     sent again in a new session                                 └──> a refusal and its reason

`sign` may be cancelled at any time; its request is not sent again then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stoker.outbound.errors import ObjectStoreDown, ObjectStoreRefused
from stoker.wire.messages import WANTED_MOST, Grant, SignAnswer, SignAsk, Signed, Wanted

MAX_REQUESTS = 32
"""The most SignAsks in one message to control."""


class SigningRequests:
    """The requests for signatures. `wake` is set when there are requests to send; `unsent` holds those that
    this session has not sent."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._number = 0
        self._requests: dict[int, tuple[SignAsk, asyncio.Future[SignAnswer]]] = {}
        self.unsent: set[int] = set()

    async def sign(self, grant: Grant, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        """Returns the signed requests in the same order. Raises an ObjectStoreError with control's reason."""
        signed: list[Signed] = []
        for first in range(0, len(wanted), WANTED_MOST):
            signed += await self._request(grant, tuple(wanted[first : first + WANTED_MOST]))
        return tuple(signed)

    async def _request(self, grant: Grant, wanted: tuple[Wanted, ...]) -> tuple[Signed, ...]:
        self._number += 1
        number = self._number
        answered: asyncio.Future[SignAnswer] = asyncio.get_running_loop().create_future()
        self._requests[number] = SignAsk(number, grant.job, grant.attempt, wanted), answered
        self.unsent.add(number)
        self.wake.set()
        try:
            answer = await answered
        finally:
            del self._requests[number]
            self.unsent.discard(number)
        if answer.refusal:
            raise (ObjectStoreDown if answer.retryable else ObjectStoreRefused)(answer.refusal)
        if len(answer.signed) != len(wanted):
            raise ObjectStoreRefused("control signed another number of requests than it was asked for")
        return answer.signed

    # -- the session

    def reconnected(self) -> None:
        """Lets the requests that the last session did not answer be sent again."""
        self.unsent = set(self._requests)

    def take(self) -> tuple[SignAsk, ...]:
        """Returns the requests to send now."""
        requests = tuple(self._requests[number][0] for number in sorted(self.unsent)[:MAX_REQUESTS])
        self.unsent -= {request.number for request in requests}
        return requests

    def answered(self, answer: SignAnswer) -> None:
        """Delivers an answer, unless its `sign` was cancelled."""
        if (pending := self._requests.get(answer.number)) is not None and not pending[1].done():
            pending[1].set_result(answer)
