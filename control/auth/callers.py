"""Callers: API keys are looked up in the store, and what was found is remembered for five seconds.

So a key that is revoked elsewhere opens for five seconds more; one that expires, not a moment more. `forget`
makes a change of this process count at once. When a key was used last is stored once a minute, beside all
calls, and is true to five seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from stoker.control.auth.identities import TOKEN_CHARACTERS, is_token
from stoker.control.errors import Unauthorized, level_of
from stoker.control.rules.access import Caller
from stoker.control.store.database.commits import Commits
from stoker.control.store.resources.keys import find_caller, note_use

if TYPE_CHECKING:
    from stoker.control.auth.oidc import SignIn

log = logging.getLogger(__name__)

REMEMBERED_S = 5.0
MOST_REMEMBERED = 10_000
KEY_CHARACTERS = 256
NOTE_EVERY_S = 60.0

_INVALID = "invalid api key"


class Callers:
    def __init__(self, commits: Commits, clock: Callable[[], float]) -> None:
        self._commits = commits
        self._clock = clock
        self._known: dict[bytes, tuple[float, Caller]] = {}
        self._used: dict[str, float] = {}
        self._forgotten = 0
        self.sign_in: SignIn | None = None
        """Callers that come with tokens of an issuer, where the configuration names one."""

    async def find(self, authorization: str | None) -> Caller:
        """Returns who holds the key of this header, which has the key after `Bearer`, or bare, as existing
        workers and some clients send it. Raises Unauthorized for a key that is missing, unknown, revoked or
        expired, and what `SignIn.find` raises for a token of an issuer."""
        token = (authorization or "").strip()
        if token[:7].lower() == "bearer ":
            token = token[7:].strip()
        if not token or token.lower() == "bearer":
            raise Unauthorized("no token provided")
        sign_in = self.sign_in if self.sign_in is not None and is_token(token) else None
        if len(token) > (KEY_CHARACTERS if sign_in is None else TOKEN_CHARACTERS):
            raise Unauthorized(_INVALID)
        now = asyncio.get_running_loop().time()
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        remembered = self._known.get(digest)
        if remembered is not None and remembered[0] > now:
            return remembered[1]
        at, forgotten = self._clock(), self._forgotten
        if sign_in is not None:
            found: tuple[Caller, float | None] | None = await sign_in.find(token)
        else:
            found = await self._commits.read(lambda conn: find_caller(conn, token, at))
        if found is None:  # not remembered: strangers may send any number of them
            raise Unauthorized(_INVALID)
        caller, expires_at = found
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        left = REMEMBERED_S if expires_at is None else min(REMEMBERED_S, expires_at - at)
        if forgotten == self._forgotten:  # else this may be what the key was before
            self._known[digest] = (now + left, caller)
        if sign_in is None:
            self._used[caller.key] = at
        return caller

    def forget(self) -> None:
        """Drops every caller that was found before, because a key was changed."""
        self._forgotten += 1
        self._known.clear()

    async def run(self) -> None:
        """Notes uses, until cancelled."""
        while True:
            await asyncio.sleep(NOTE_EVERY_S)
            await self.note()

    async def note(self) -> None:
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await self._commits.commit(lambda conn: note_use(conn, used))
        except Exception as error:
            log.log(
                level_of(error),
                "when keys were used last could not be stored, and is stored later: %r",
                error,
            )
            self._used = used | self._used
