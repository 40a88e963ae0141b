"""The connection to the identity provider: its document, and its tokens for a code or a refresh token.

Control's guard of outgoing connections is not used: the operator named this address, and a page has no
callers who could name another. Redirects are not followed, and answers are bounded in time and size.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus

import httpx2
import jwt

from stoker.page.access.oidc_code_flow import (
    TOLD_CHARACTERS,
    Begun,
    Client,
    Provider,
    ProviderFailed,
    SignInRefused,
    Tokens,
    exchange_form,
    next_form,
    provider_of,
)

WELL_KNOWN = "/.well-known/openid-configuration"
FRESH_S = 3600.0
"""How long the provider's document is used before it is fetched again."""

WITHIN_S = 10.0
ANSWER_BYTES = 1 << 20


class IdentityProvider:
    """The provider at which this page is a client. `clock` returns seconds."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self.client, self._clock = client, clock
        self._http = httpx2.AsyncClient(
            verify=httpx2.create_ssl_context(), trust_env=False, timeout=WITHIN_S, follow_redirects=False
        )
        self._found: tuple[float, Provider] | None = None

    async def addresses(self) -> Provider:
        """Returns the provider's addresses, as it says. Raises ProviderFailed."""
        if self._found is None or self._clock() - self._found[0] >= FRESH_S:
            issuer = self.client.issuer
            status, document = await self._answer("GET", issuer.rstrip("/") + WELL_KNOWN)
            if status != httpx2.codes.OK:
                raise ProviderFailed(f"{issuer} answers {status} where its configuration should be")
            self._found = self._clock(), provider_of(issuer, document)
        return self._found[1]

    async def tokens(self, begun: Begun, code: str) -> Tokens:
        """Returns the tokens for this code. The signature of the ID token is not verified here. Raises
        ProviderFailed and SignInRefused."""
        provider = await self.addresses()
        return await self._tokens(provider, exchange_form(self.client, provider, begun, code))

    async def next_tokens(self, refresh: str) -> Tokens:
        """Returns the tokens for this refresh token, as `tokens` does."""
        provider = await self.addresses()
        return await self._tokens(provider, next_form(self.client, provider, refresh))

    async def _tokens(self, provider: Provider, form: Mapping[str, str]) -> Tokens:
        client, auth = self.client, None
        if client.secret is not None and provider.by_header:
            auth = quote_plus(client.id), quote_plus(client.secret)  # as OAuth 2 has it, RFC 6749, 2.3.1
        status, found = await self._answer("POST", provider.token, data=form, auth=auth)
        if status >= httpx2.codes.INTERNAL_SERVER_ERROR:
            raise ProviderFailed(f"{provider.token} answers {status}")
        if status != httpx2.codes.OK:
            told = ": ".join(str(found[name]) for name in ("error", "error_description") if name in found)
            why = told[:TOLD_CHARACTERS] or f"it answers {status}"
            raise SignInRefused(f"{client.issuer} gives no token for this sign-in: {why}")
        token, refresh = str(found.get("id_token")), found.get("refresh_token")
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError:
            raise ProviderFailed(
                f"{client.issuer} answers without an ID token: the scope must have openid"
            ) from None
        return Tokens(token, claims, refresh if isinstance(refresh, str) else None)

    async def _answer(self, method: str, url: str, **sent: Any) -> tuple[int, Mapping[str, Any]]:
        """Returns the status and the JSON object of an answer."""
        body = bytearray()
        headers = {"Accept": "application/json"}
        try:
            async with (
                asyncio.timeout(WITHIN_S),
                self._http.stream(method, url, headers=headers, **sent) as answer,
            ):
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > ANSWER_BYTES:
                        raise ProviderFailed(f"{url} answers with more than {ANSWER_BYTES} bytes")
        except TimeoutError:
            raise ProviderFailed(f"{url} did not answer within {WITHIN_S:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise ProviderFailed(f"{url} cannot be reached: {error or type(error).__name__}") from None
        try:
            found = json.loads(bytes(body))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ProviderFailed(f"{url} answers {answer.status_code} without a JSON object")
        return answer.status_code, found

    async def close(self) -> None:
        await self._http.aclose()
