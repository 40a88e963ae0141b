"""Callers that are not authenticated yet: few at a time, and none of their messages is read.

    call ── its token was good a moment ago ───────────────────> admitted
        ├── fewer than AT_ONCE are checked ─── it is known ────> admitted
        │                                    └─ it is not ─────> refused, REFUSED_S later
        └── too many are ──────────────────────────────────────> turned away: try again later

A caller that guesses holds a slot while it waits for its answer, so guesses are at most AT_ONCE for each
REFUSED_S, FROM_ONE of them from one address, however many call. A token that was good is remembered for
GOOD_S, so that nodes which reconnect are not delayed by others; one that was revoked meanwhile is refused
at Hello, with the store's reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

AT_ONCE = 64
FROM_ONE = 8
"""Of one address: callers from other addresses find a slot."""

REFUSED_S = 0.1
GOOD_S = 60.0
LOGGED_S = 60.0
"""Callers that are not admitted are logged once in this time, however many there are."""

REMEMBERED = 4096
TOKEN_MAX = 512
"""Bytes of a token."""


class TurnedAway(Exception):
    """Too many are being checked already."""


class UnauthenticatedCallers:
    """The callers that are being checked. `check` returns why a token is not known, or None; where `check`
    raises, that says nothing about the token."""

    def __init__(self, check: Callable[[str], Awaitable[str | None]]) -> None:
        self._check = check
        self._looked_at: Counter[str] = Counter()
        self._good: dict[bytes, float] = {}
        self._unlogged = 0
        self._logged_at = float("-inf")

    async def admit(self, token: bytes, peer: str) -> str | None:
        """Returns why this caller is refused; None when it is admitted. Raises TurnedAway."""
        try:
            refusal = await self._look_at(token, _host(peer))
        except TurnedAway as turned:
            self._log(peer, str(turned))
            raise
        if refusal is not None:
            self._log(peer, refusal)
        return refusal

    async def _look_at(self, token: bytes, host: str) -> str | None:
        if len(token) > TOKEN_MAX:
            return f"a token has at most {TOKEN_MAX} bytes, this one has {len(token)}"
        loop, digest = asyncio.get_running_loop(), hashlib.sha256(token).digest()
        if self._good.get(digest, 0.0) > loop.time():
            return None
        if self._looked_at[host] >= FROM_ONE or self._looked_at.total() >= AT_ONCE:
            raise TurnedAway("too many callers who are not known yet: try again")
        self._looked_at[host] += 1
        try:
            refusal = await self._refusal(token)
            if refusal is not None:
                await asyncio.sleep(REFUSED_S)
        finally:
            self._looked_at[host] -= 1
            self._looked_at += Counter()  # forgets those of whom none is left
        if refusal is None:
            self._remember(digest, loop.time())
        return refusal

    async def _refusal(self, token: bytes) -> str | None:
        if not token:
            return "no token came with the call: this agent is older than this control plane, update it"
        try:
            return await self._check(token.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            return "the token is not text"

    def _log(self, peer: str, why: str) -> None:
        now = asyncio.get_running_loop().time()
        self._unlogged += 1
        if now - self._logged_at >= LOGGED_S:
            log.warning("calls of agents refused: %d, the last from %s: %s", self._unlogged, peer, why)
            self._unlogged, self._logged_at = 0, now

    def _remember(self, digest: bytes, now: float) -> None:
        if len(self._good) >= REMEMBERED:
            self._good = {known: until for known, until in self._good.items() if until > now}
        if len(self._good) < REMEMBERED:
            self._good[digest] = now + GOOD_S


def _host(peer: str) -> str:
    """Returns the host of a peer such as `ipv4:10.0.0.1:4711`, with its family."""
    return peer.rpartition(":")[0]
