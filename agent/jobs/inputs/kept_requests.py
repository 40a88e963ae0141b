"""Asks control for chunks that an attempt's save covers, over the session.

    page ── KeptAsk ──> (waits for a session) ──> control: does this node hold that attempt? ──> chunks
                    sent again in a new session                                          └──> a refusal

`page` may be cancelled at any time; its ask is not sent again then. Few are under way at once: an answer may
have 4 MiB.
"""

from __future__ import annotations

import asyncio

from stoker.wire.messages import AttemptKey, KeptAsk, KeptPage

AT_ONCE = 4
"""The most asks of this node that control has not answered, and the most objects that it reads."""

NOT_GIVEN = "this control is of an earlier version, and gives none back"


class KeptRequests:
    """The requests for kept chunks. `wake` is set when there is something to ask for; `given`: control
    answers asks. `objects` is the room for large chunks, which may have 64 MiB each."""

    def __init__(self, wake: asyncio.Event) -> None:
        self._wake = wake
        self._room = asyncio.Semaphore(AT_ONCE)
        self.objects = asyncio.Semaphore(AT_ONCE)
        self._number = 0
        self._asked: dict[int, tuple[KeptAsk, asyncio.Future[KeptPage]]] = {}
        self.unsent: set[int] = set()
        self.given = False

    async def page(self, key: AttemptKey, first: int, upto: int) -> KeptPage:
        """Returns the chunk `first` and some that follow, all before `upto`; or a refusal."""
        async with self._room:
            self._number += 1
            number, answered = self._number, asyncio.get_running_loop().create_future()
            self._asked[number] = KeptAsk(number, key.job, key.attempt, first, upto), answered
            self.unsent.add(number)
            self._wake.set()
            try:
                page: KeptPage = await answered
                return page
            finally:
                del self._asked[number]
                self.unsent.discard(number)

    # -- the session

    def reconnected(self) -> None:
        """Lets nothing be asked until control has said whether it answers."""
        self.unsent = set()

    def welcomed(self, *, kept: bool) -> None:
        """Lets the asks that the last session did not answer be sent again; refuses them if control answers
        none."""
        self.given = kept
        self.unsent = set(self._asked) if kept else set()
        if not kept:
            for number in self._asked:
                self.answered(KeptPage(number, NOT_GIVEN))

    def take(self) -> tuple[KeptAsk, ...]:
        """Returns the asks to send now."""
        asks = tuple(self._asked[number][0] for number in sorted(self.unsent)) if self.given else ()
        self.unsent = set()
        return asks

    def answered(self, page: KeptPage) -> None:
        """Delivers an answer, unless its `page` was cancelled."""
        if (pending := self._asked.get(page.number)) is not None and not pending[1].done():
            pending[1].set_result(page)
