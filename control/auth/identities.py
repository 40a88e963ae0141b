"""The rights of people who sign in at an issuer (OpenID Connect): what the groups of a token allow, and when
the issuer's keys are fetched. Pure: it gets claims that were verified.

    groups of the claim ── none has a right here ──> Forbidden
                        └─ some have ──> the strongest of their rights
    key of a token ── known, and fetched lately ───────────> used
                   ├─ unknown, or fetched long ago ── no try lately ──> fetched
                   └─ the same, just after a try ──> what is known is used, until it is too old
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from stoker.control.rules.access import Access
from stoker.outbound.refused_addresses import is_loopback

Role = Literal["read", "write", "all"]
ROLES: Mapping[Role, Access] = {
    "read": Access("read"),
    "write": Access("restricted", "write", {"*": "read"}),
    "all": Access("all"),
}
"""The weakest first. `write` changes everything in management but keys, and reads jobs; `all` is as a key of
this scope."""

FRESH_S = 3600.0
"""How long the issuer's keys are used before they are fetched again."""

STALE_S = 86_400.0
"""How long they are used while the issuer cannot be reached: one that was withdrawn there counts no
longer."""

TRY_EVERY_S = 30.0
"""Tokens with unknown keys, which anybody can make, cause no more fetches than that."""

SUBJECT_MAX = 255
TOKEN_CHARACTERS = 16_384


class KnownKeys(Struct, frozen=True):
    """The times at which the issuer's keys were fetched, and at which that was tried last; the keys' ids."""

    fetched_at: float = float("-inf")
    tried_at: float = float("-inf")
    ids: frozenset[str] = field(default_factory=frozenset)


def must_fetch(known: KnownKeys, key: str, now: float) -> bool:
    """Returns whether the issuer's keys are to be fetched before a token with this key is verified."""
    wanted = key not in known.ids or now - known.fetched_at >= FRESH_S
    return wanted and now - known.tried_at >= TRY_EVERY_S


def usable(known: KnownKeys, now: float) -> bool:
    """Returns whether the keys may be used still."""
    return now - known.fetched_at < STALE_S


def groups_of(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    """Returns the groups that a claim has: a list of texts, or a text with spaces. A claim in another one is
    named with a dot, such as `realm_access.roles`; a name that has dots of its own is found first."""
    found: Any = claims
    for name in [claim] if claim in claims else claim.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return frozenset(found.split())
    return frozenset(one for one in found if isinstance(one, str)) if isinstance(found, list) else frozenset()


def access_of(groups: Collection[str], rights: Mapping[str, Role]) -> Access | None:
    """Returns the strongest right of these groups; None where none has any."""
    given = {rights[group] for group in groups if group in rights}
    return next((access for role, access in reversed(list(ROLES.items())) if role in given), None)


def subject_of(claims: Mapping[str, Any]) -> str | None:
    """Returns the name under which a caller is in the audit log; None for a subject that could not stand
    there."""
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_MAX or not subject.isprintable():
        return None
    return f"oidc:{subject}"


def is_token(text: str) -> bool:
    """Returns whether this has the form of a signed token, and not that of a key."""
    return text.startswith("eyJ") and text.count(".") == 2


def is_secured(url: str) -> bool:
    """Returns whether keys at this URL can be believed: over TLS, or from this host."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
