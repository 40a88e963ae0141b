"""The sign-in at an identity provider (OpenID Connect, authorization code with PKCE): its requests, and the
checks of what comes back. Pure: time, random values and the provider's answers come in as data.

    a browser begins ─> state, nonce, verifier are kept here; the browser has the token of them in a cookie
    ─> the provider's own page ─> back, with a code and the state
    ─> the code and the verifier, to the provider ─> an ID token with the nonce ─> control ─> a session

Control verifies the token's signature, as it does for each call that comes with one. A page can check what
control cannot know: that the token is of the very sign-in which this browser began.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from stoker.page.access.sessions import digest

BEGUN_S = 600.0
"""How long somebody has for the provider's page."""

BEGUN_MOST = 10_000
TOLD_CHARACTERS = 300


class SignInFailed(Exception):
    """Base: nobody is signed in; the text says why."""


class SignInRefused(SignInFailed):
    """The provider's answer is not one to this sign-in, or refuses it."""


class ProviderFailed(SignInFailed):
    """The provider cannot be reached, or its answers cannot be used."""


@dataclass(frozen=True, slots=True)
class Client:
    """The page, as the provider knows it. Without a secret it is a public client."""

    issuer: str
    id: str
    secret: str | None = field(default=None, repr=False)
    scope: str = "openid"


@dataclass(frozen=True, slots=True)
class Provider:
    """The addresses of a provider. `by_header`: it takes the secret of a client in a header, else in the
    body."""

    authorization: str
    token: str
    by_header: bool = True


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in that a browser has begun; `back` is where the provider sends the browser afterwards."""

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    back: str
    until: float


class BegunSignIns:
    """All sign-ins that were begun and did not come back, by the digest of their token. Each comes back
    once."""

    def __init__(self) -> None:
        self._kept: dict[str, Begun] = {}

    def keep(self, token: str, begun: Begun, now: float) -> None:
        """Keeps it until its end; the oldest goes where there are too many."""
        for old in [one for one, kept in self._kept.items() if kept.until <= now]:
            del self._kept[old]
        while len(self._kept) >= BEGUN_MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[digest(token)] = begun

    def take(self, token: str, now: float) -> Begun | None:
        begun = self._kept.pop(digest(token), None)
        return begun if begun and now < begun.until else None


@dataclass(frozen=True, slots=True)
class Tokens:
    """The answer to a code or to a refresh token: an ID token and its claims, and the token for the next one,
    where the provider gives one."""

    id_token: str = field(repr=False)
    claims: Mapping[str, Any] = field(repr=False)
    refresh: str | None = field(default=None, repr=False)


def provider_of(issuer: str, document: Mapping[str, Any]) -> Provider:
    """Returns the provider that the issuer's own document describes. Raises ProviderFailed."""
    if document.get("issuer") != issuer:
        raise ProviderFailed(f"what answers at {issuer} calls itself {_told(document.get('issuer'))}")
    urls = []
    for name in ("authorization_endpoint", "token_endpoint"):
        url = document.get(name)
        if not isinstance(url, str) or not is_secured(url):
            raise ProviderFailed(f"the {name} of {issuer} must be an https URL; got {_told(url)}")
        urls.append(url)
    ways = document.get("token_endpoint_auth_methods_supported")
    by_header = not isinstance(ways, list) or "client_secret_basic" in ways
    return Provider(urls[0], urls[1], by_header)


def is_secured(url: str) -> bool:
    """Returns whether what is sent to this URL is read by nobody else: over TLS, or on this host."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and host in ("127.0.0.1", "::1", "localhost"))
    )


def sign_in_url(provider: Provider, client: Client, begun: Begun) -> str:
    """Returns the address of the provider's page for this sign-in."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(begun.verifier.encode()).digest()).rstrip(b"=")
    query = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": begun.back,
        "scope": client.scope,
        "state": begun.state,
        "nonce": begun.nonce,
        "code_challenge": challenge.decode(),
        "code_challenge_method": "S256",
    }
    return f"{provider.authorization}{'&' if '?' in provider.authorization else '?'}{urlencode(query)}"


def code_of(begun: Begun | None, issuer: str, query: Mapping[str, str]) -> tuple[Begun, str]:
    """Returns the sign-in and its code, of the request with which a browser comes back. Raises
    SignInRefused."""
    if begun is None:
        raise SignInRefused(
            "this sign-in was not begun in this browser, was over before, or took longer than ten minutes:"
            " begin again"
        )
    if not _same(begun.state, query.get("state", "")):
        raise SignInRefused("the provider's answer has another state than this sign-in: begin again")
    if query.get("iss", issuer) != issuer:
        raise SignInRefused(f"the answer is of {_told(query['iss'])}, and not of {issuer}")
    if "error" in query:
        told = ": ".join(query[name] for name in ("error", "error_description") if name in query)
        raise SignInRefused(f"{issuer} refuses this sign-in: {told[:TOLD_CHARACTERS]}")
    if not query.get("code"):
        raise SignInRefused(f"the answer of {issuer} has no code: begin again")
    return begun, query["code"]


def exchange_form(client: Client, provider: Provider, begun: Begun, code: str) -> dict[str, str]:
    """Returns the fields that are sent for an ID token."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": begun.back,
        "code_verifier": begun.verifier,
    }
    return {**form, **_as_client(client, provider)}


def next_form(client: Client, provider: Provider, refresh: str) -> dict[str, str]:
    """Returns the fields that are sent for the ID token after another one."""
    form = {"grant_type": "refresh_token", "refresh_token": refresh}
    return {**form, **_as_client(client, provider)}


def _as_client(client: Client, provider: Provider) -> dict[str, str]:
    own = {"client_id": client.id}
    if client.secret is not None and not provider.by_header:
        own["client_secret"] = client.secret
    return own


def end_of(claims: Mapping[str, Any], begun: Begun, client: Client, now: float) -> float:
    """Returns when an ID token with these claims expires. Raises SignInRefused where it is not one for this
    sign-in."""
    end = _end_of_ours(claims, client, now)
    if not _same(begun.nonce, str(claims.get("nonce", ""))):
        raise _refused(client, "it has another nonce than this sign-in: begin again")
    return end


def end_of_next(claims: Mapping[str, Any], subject: str, client: Client, now: float) -> float:
    """Returns when the ID token after one of this subject expires. Raises SignInRefused where it is not
    one."""
    end = _end_of_ours(claims, client, now)
    if claims.get("sub") != subject:
        raise _refused(client, f"it is of {_told(claims.get('sub'))}, and not of {_told(subject)}")
    return end


def _end_of_ours(claims: Mapping[str, Any], client: Client, now: float) -> float:
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires = claims.get("exp")
    if claims.get("iss") != client.issuer:
        why = f"it is of {_told(claims.get('iss'))}"
    elif client.id not in audiences or claims.get("azp", client.id) != client.id:
        why = f"it is for {_told(audience)}, and not for {client.id}"
    elif not isinstance(expires, int | float) or expires <= now:
        why = "it has expired: compare the clocks of both hosts"
    else:
        return float(expires)
    raise _refused(client, why)


def _refused(client: Client, why: str) -> SignInRefused:
    return SignInRefused(f"the token of {client.issuer} is refused: {why}")


def _same(kept: str, brought: str) -> bool:
    """Returns whether both are the same, in a time that tells nothing of the kept one."""
    return hmac.compare_digest(kept.encode(), brought.encode("utf-8", "surrogatepass"))


def _told(value: Any) -> str:
    return repr(str(value)[:TOLD_CHARACTERS])
