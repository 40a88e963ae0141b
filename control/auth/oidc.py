"""Tokens of an issuer (OpenID Connect) in place of keys: verified with the issuer's keys, which are fetched
through the guard of outgoing connections.

    token ── algorithm, key, signature, issuer, audience, times ── wrong ──> Unauthorized, with the reason
                                                                └─ right ── groups ── Caller, or Forbidden
    the issuer cannot be reached, and its keys are not known ──> Unavailable

Only algorithms with a public key are accepted, whatever a token says of itself: none with a shared secret,
and not `none`. A token may say which of the issuer's keys signed it, and nothing else about its own
verification."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import jwt
from msgspec import Struct
from msgspec.structs import replace

from stoker.control.auth.identities import (
    KnownKeys,
    Role,
    access_of,
    groups_of,
    is_secured,
    must_fetch,
    subject_of,
    usable,
)
from stoker.control.errors import Forbidden, Unauthorized, Unavailable
from stoker.control.rules.access import Caller
from stoker.control.store import DEFAULT_ACCOUNT
from stoker.outbound.errors import OutboundError

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
REQUIRED = ("iss", "aud", "exp", "iat", "sub")
LEEWAY_S = 30.0
"""How far the issuer's clock may be off."""

WELL_KNOWN = "/.well-known/openid-configuration"

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns the body at a URL. Raises OutboundError."""


class Issuer(Struct, frozen=True):
    """The issuer, and the audiences of which tokens must name one; the rights of groups in the claim
    `claim`."""

    url: str
    audience: str | list[str]
    claim: str
    rights: Mapping[str, Role]


class NoIssuer(Exception):
    """The issuer's keys cannot be had; the message says why."""


class SignIn:
    """The callers that come with tokens of one issuer. `clock` returns seconds since the epoch."""

    def __init__(self, issuer: Issuer, fetch: Fetch, clock: Callable[[], float]) -> None:
        self._issuer, self._fetch, self._clock = issuer, fetch, clock
        self._known = KnownKeys()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetching = asyncio.Lock()

    async def find(self, token: str) -> tuple[Caller, float]:
        """Returns whose token this is, and when it expires. Raises Unauthorized, Forbidden and
        Unavailable."""
        claims = self._verified(token, await self._key_of(token))
        subject = subject_of(claims)
        if subject is None:
            raise self._refused("its subject is not a text of at most 255 characters")
        access = access_of(groups_of(claims, self._issuer.claim), self._issuer.rights)
        if access is None:
            allowed = ", ".join(sorted(self._issuer.rights))
            raise Forbidden(
                f"{subject} may do nothing here: none of the groups in the claim {self._issuer.claim} is one"
                f" of {allowed} ([oidc.rights] of stoker.toml)"
            )
        return Caller(DEFAULT_ACCOUNT, subject, access), float(claims["exp"]) + LEEWAY_S

    async def _key_of(self, token: str) -> jwt.PyJWK:
        try:
            key = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError as error:
            raise self._refused(f"its head cannot be read: {error}") from None
        if not isinstance(key, str):
            raise self._refused("it does not name its key (kid)")
        if must_fetch(self._known, key, self._clock()):
            async with self._fetching:
                if must_fetch(self._known, key, self._clock()):  # nobody else did meanwhile
                    await self._fetch_keys()
        if not usable(self._known, self._clock()):
            raise Unavailable(f"the keys of {self._issuer.url} cannot be had: try later, or use an API key")
        if key not in self._keys:
            raise self._refused(f"its key {key[:80]!r} is not one of the issuer's")
        return self._keys[key]

    async def _fetch_keys(self) -> None:
        """Fetches the issuer's keys. Where that fails, the known ones stay, and the log has the reason."""
        now = self._clock()
        self._known = replace(self._known, tried_at=now)
        try:
            found = keys_in(await self._document(await self._keys_url()))
        except (OutboundError, NoIssuer) as error:
            log.error("the keys of %s cannot be fetched: %s", self._issuer.url, error)
            return
        self._keys, self._known = found, KnownKeys(now, now, frozenset(found))
        log.info("%s has the keys %s", self._issuer.url, ", ".join(sorted(found)))

    async def _keys_url(self) -> str:
        found = await self._document(self._issuer.url.rstrip("/") + WELL_KNOWN)
        if found.get("issuer") != self._issuer.url:
            raise NoIssuer(f"what answers there calls itself {str(found.get('issuer'))[:200]!r}")
        url = found.get("jwks_uri")
        if not isinstance(url, str) or not is_secured(url):
            raise NoIssuer(f"its jwks_uri must be an https URL; got {str(url)[:200]!r}")
        return url

    async def _document(self, url: str) -> dict[str, Any]:
        try:
            found = json.loads(await self._fetch(url))
        except ValueError:
            raise NoIssuer(f"{url} is not JSON") from None
        if not isinstance(found, dict):
            raise NoIssuer(f"{url} is not a JSON object")
        return found

    def _verified(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        issuer = self._issuer
        try:
            return jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=issuer.audience,
                issuer=issuer.url,
                leeway=LEEWAY_S,
                options={"require": list(REQUIRED), "enforce_minimum_key_length": True},
            )
        except jwt.ExpiredSignatureError:
            raise self._refused("it has expired: sign in again") from None
        except jwt.ImmatureSignatureError:
            raise self._refused("it is not valid yet: compare the clocks of both hosts") from None
        except jwt.PyJWTError as error:
            raise self._refused(str(error)) from None

    def _refused(self, why: str) -> Unauthorized:
        return Unauthorized(f"this token of {self._issuer.url} is refused: {why[:300]}")


def keys_in(document: Mapping[str, Any]) -> dict[str, jwt.PyJWK]:
    """Returns the keys of a JWKS that verify signatures, by their ids. What this control cannot use is left
    out. Raises NoIssuer where none is left."""
    found = {}
    listed = document.get("keys")
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("kty") not in ("RSA", "EC", "OKP") or one.get("use") == "enc":
            continue
        try:
            key = jwt.PyJWK(one)
        except jwt.PyJWTError:
            continue
        if isinstance(key.key_id, str) and key.key_id and "d" not in one:
            found[key.key_id] = key
    if not found:
        raise NoIssuer("its JWKS has no key that verifies signatures")
    return found
