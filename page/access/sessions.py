"""The sessions of browsers that signed in. Pure: time and random tokens come in as data.

    key, or token of a provider ─> sign_in ──> token of a session: the browser's cookie
    link's one-time token ──> redeem ──> the same, once, within LINK_S

A token is kept as its digest, and the key in this process's memory only. A session ends SESSION_S after the
sign-in, with a provider's token earlier, or when it is signed out.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace

SESSION_S = 12 * 3600.0
LINK_S = 600.0
SESSIONS_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in browser. `until` is on the clock that the caller uses, in seconds, and `most` the latest
    that it may become."""

    key: str = field(repr=False)
    until: float
    most: float


@dataclass(slots=True)
class Sessions:
    """All sessions and unused links, by the digest of their token."""

    _open: dict[str, Session] = field(default_factory=dict)
    _links: dict[str, Session] = field(default_factory=dict)

    def sign_in(self, key: str, token: str, now: float, until: float = math.inf) -> float:
        """Begins a session that `token` names, and returns its end: at `until`, if not earlier. The oldest
        session ends where there are too many."""
        self._expire(now)
        while len(self._open) >= SESSIONS_MOST:
            del self._open[next(iter(self._open))]
        until = min(until, now + SESSION_S)
        self._open[digest(token)] = Session(key, until, now + SESSION_S)
        return until

    def offer_link(self, key: str, token: str, now: float) -> None:
        """Lets whoever has `token` sign in once, with this key."""
        self._expire(now)
        self._links[digest(token)] = Session(key, now + LINK_S, now + LINK_S)

    def redeem(self, token: str, now: float) -> str | None:
        """Returns the key of an unused link and uses the link up, or returns None."""
        self._expire(now)
        link = self._links.pop(digest(token), None)
        return link.key if link else None

    def key_of(self, token: str, now: float) -> str | None:
        """Returns the key of the session that `token` names, or None."""
        session = self._open.get(digest(token))
        return session.key if session and now < session.until else None

    def is_open(self, name: str, now: float) -> bool:
        """Returns whether the session goes on whose token has this digest."""
        return name in self._open and now < self._open[name].until

    def prolong(self, name: str, until: float) -> None:
        """Moves the end of the session whose token has this digest: SESSION_S after the sign-in at most."""
        if (session := self._open.get(name)) is not None:
            self._open[name] = replace(session, until=min(until, session.most))

    def sign_out(self, token: str) -> None:
        self._open.pop(digest(token), None)

    def _expire(self, now: float) -> None:
        for kept in (self._open, self._links):
            for digest in [one for one, session in kept.items() if session.until <= now]:
                del kept[digest]


def digest(token: str) -> str:
    """Returns by what a token is known here."""
    return hashlib.sha256(token.encode()).hexdigest()
