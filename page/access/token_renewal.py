"""The renewal of sessions that began at an identity provider: before an ID token ends, the provider gives
another one for the refresh token that came with it.

    a session is open, and its token about to end ── another token, of the same person ──> it goes on
                                                  ├─ the provider refuses ──> it ends with its token
                                                  └─ the provider is away ──> asked again, until then

Refresh tokens stay in this process, as the others do, and are forgotten with their session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoker.page.access.connections import Connections
from stoker.page.access.oidc_code_flow import ProviderFailed, SignInRefused, Tokens, end_of_next
from stoker.page.access.sessions import Sessions

if TYPE_CHECKING:
    from stoker.page.access.identity_provider import IdentityProvider

log = logging.getLogger(__name__)

LOOK_S = 15.0
BEFORE_S = 60.0
"""How long before the end of a token another one is requested."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A session's refresh token; the key of its connection, which stays; whose it is; and its token's end."""

    refresh: str = field(repr=False)
    key: str = field(repr=False)
    subject: str
    until: float


class Renewals:
    """All sessions that are renewed, by their names in `sessions`. `clock` returns seconds since the
    epoch."""

    def __init__(
        self,
        provider: IdentityProvider,
        sessions: Sessions,
        connections: Connections,
        clock: Callable[[], float],
    ) -> None:
        self._provider, self._sessions, self._connections = provider, sessions, connections
        self._clock = clock
        self._kept: dict[str, Kept] = {}

    def keep(self, session: str, tokens: Tokens, until: float) -> bool:
        """Renews this session from now on. Returns False where the provider gave no refresh token."""
        if tokens.refresh is None:
            return False
        self._kept[session] = Kept(tokens.refresh, tokens.id_token, str(tokens.claims.get("sub")), until)
        return True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Renews sessions in time during the block."""
        renewing = asyncio.create_task(self._run())
        renewing.add_done_callback(_tell_fault)
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Forgets the sessions that are over, and renews those whose token is about to end."""
        now = self._clock()
        self._kept = {name: kept for name, kept in self._kept.items() if self._sessions.is_open(name, now)}
        due = [name for name, kept in self._kept.items() if kept.until - now <= BEFORE_S]
        renewals = (self._renew(name, self._kept[name]) for name in due)
        for found in await asyncio.gather(*renewals, return_exceptions=True):
            if isinstance(found, Exception):
                log.error("a session of the page is not renewed yet, by a fault of the page", exc_info=found)

    async def _renew(self, session: str, kept: Kept) -> None:
        try:
            tokens = await self._provider.next_tokens(kept.refresh)
            until = end_of_next(tokens.claims, kept.subject, self._provider.client, self._clock())
        except SignInRefused as error:
            log.warning("a session of the page is not renewed, and ends with its token: %s", error)
            del self._kept[session]
        except ProviderFailed as error:
            log.warning("a session of the page is not renewed yet: %s", error)
        else:
            self._connections.renew(kept.key, tokens.id_token, until)
            self._sessions.prolong(session, until)
            self._kept[session] = Kept(tokens.refresh or kept.refresh, kept.key, kept.subject, until)


def _tell_fault(renewing: asyncio.Task[None]) -> None:
    if not renewing.cancelled() and (error := renewing.exception()) is not None:
        log.error("the page renews no session any more, by a fault of the page: restart it", exc_info=error)
