"""Asks control for the source of handlers, over the session.

    fetch ── digest ──> (waits for a session) ──> control: does a worker of this node have that source?
                   asked again in a new session        └──> an archive, or a refusal and its reason

`fetch` may be cancelled at any time; its digest is not asked for again then.
"""

from __future__ import annotations

import asyncio

from stoker.wire.messages import SourceAnswer
from stoker.wire.source_archive import SourceUnusable


class SourceRequests:
    """The requests for the source of handlers. `wake` is set when there is something to ask for."""

    def __init__(self, wake: asyncio.Event) -> None:
        self._wake = wake
        self._answered: dict[str, asyncio.Future[SourceAnswer]] = {}
        self.unsent: set[str] = set()

    async def fetch(self, digest: str) -> bytes:
        """Returns the archive. To be called once at a time for a digest. Raises SourceUnusable with control's
        reason."""
        self._answered[digest] = asyncio.get_running_loop().create_future()
        self.unsent.add(digest)
        self._wake.set()
        try:
            answer = await self._answered[digest]
        finally:
            del self._answered[digest]
            self.unsent.discard(digest)
        if answer.refusal:
            raise SourceUnusable(answer.refusal)
        return answer.archive

    # -- the session

    def reconnected(self) -> None:
        """Lets what the last session did not answer be asked for again."""
        self.unsent = set(self._answered)

    def take(self) -> tuple[str, ...]:
        """Returns the digests to ask for now."""
        digests, self.unsent = tuple(sorted(self.unsent)), set()
        return digests

    def answered(self, answer: SourceAnswer) -> None:
        """Delivers an answer, unless its `fetch` was cancelled."""
        if (pending := self._answered.get(answer.digest)) is not None and not pending.done():
            pending.set_result(answer)
