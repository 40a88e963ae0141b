"""Signing in and out: plain HTML forms and a cookie, without a script.

The cookie is HttpOnly and SameSite=Lax, and Secure where the page is served over TLS. It holds a random
token; the key stays in this process. A link with a one-time token signs in without a key to type.

Where the page is a client of an identity provider, people sign in there: `oidc_code_flow` says how. The
provider's token is a key that ends, or is renewed (`token_renewal`), and stays here like one. A second
cookie, for the paths of signing in alone, binds a sign-in to the browser that began it, so that nobody is
signed in as somebody else by a foreign link.
"""

from __future__ import annotations

import html
import math
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import FastAPI, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from stoker.client.errors import ApiError, ClientError
from stoker.page.access.connections import Connections
from stoker.page.access.guard import COOKIE, cookie_of, token_of
from stoker.page.access.oidc_code_flow import (
    BEGUN_S,
    Begun,
    BegunSignIns,
    ProviderFailed,
    SignInFailed,
    Tokens,
    code_of,
    end_of,
    sign_in_url,
)
from stoker.page.access.sessions import SESSION_S, Sessions, digest
from stoker.page.access.token_renewal import Renewals

if TYPE_CHECKING:
    from stoker.page.access.identity_provider import IdentityProvider

BEGUN_COOKIE = "stoker-sign-in"
PATH = "/sign-in"
BACK = f"{PATH}/back"

_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sign in · Stoker</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; min-height: 90vh; margin: 0; }}
body {{ display: grid; place-items: center; }}
form {{ display: grid; gap: 12px; width: min(22rem, 90vw); }}
input, button, .provider {{ font: inherit; padding: 8px 12px; border-radius: 6px; }}
input {{ border: 1px solid #64748b; }}
button, .provider {{ background: #c2410c; color: white; border: 0; cursor: pointer; }}
.provider {{ text-align: center; text-decoration: none; }}
p {{ margin: 0; }} .wrong {{ color: #b91c1c; }}
@media (prefers-color-scheme: dark) {{ .wrong {{ color: #fca5a5; }} }}
</style></head><body><main><form method="post" action="/sign-in">
<h1 style="margin:0">Stoker</h1><p>{about}</p>{wrong}{provider}
<label for="key">API key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button></form></main></body></html>"""


class SigningIn:
    """The routes of signing in and out; `add_to` adds them. `secure`: browsers reach the page over TLS."""

    def __init__(
        self,
        sessions: Sessions,
        connections: Connections,
        provider: IdentityProvider | None = None,
        renewals: Renewals | None = None,
        *,
        secure: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sessions, self._connections, self._provider = sessions, connections, provider
        self._renewals, self._secure, self._clock = renewals, secure, clock
        self._begun = BegunSignIns()

    def add_to(self, app: FastAPI) -> None:
        app.get(PATH)(self.ask)
        app.post(PATH)(self.sign_in)
        app.post("/sign-out")(self.sign_out)
        if (provider := self._provider) is not None:

            @app.get(f"{PATH}/provider")
            async def begin(request: Request) -> Response:
                return await self._begin(request, provider)

            @app.get(BACK)
            async def come_back(request: Request) -> Response:
                return await self._come_back(request, provider)

    async def ask(self, token: str = "") -> Response:
        if not token:
            return self._form()
        key = self._sessions.redeem(token, self._clock())
        if key is None:
            return self._form(
                "This link was used before, or is older than ten minutes. Sign in with a key.", 403
            )
        return await self._try(key)

    async def sign_in(self, key: str = Form(max_length=4096)) -> Response:
        return await self._try(key.strip())

    async def sign_out(self, request: Request) -> Response:
        self._sessions.sign_out(token_of(request.headers))
        answer = RedirectResponse(PATH, 303)
        answer.delete_cookie(COOKIE)
        return answer

    async def _begin(self, request: Request, provider: IdentityProvider) -> Response:
        """Sends a browser to the provider. The guard has seen that the host is one of this page's names."""
        try:
            addresses = await provider.addresses()
        except ProviderFailed as error:
            return self._form(f"{error}. Sign in with a key, or try again.", 502)
        token, now = secrets.token_urlsafe(32), self._clock()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        back = f"{'https' if self._secure else 'http'}://{request.headers['host']}{BACK}"
        begun = Begun(state, nonce, verifier, back, now + BEGUN_S)
        self._begun.keep(token, begun, now)
        answer = RedirectResponse(sign_in_url(addresses, provider.client, begun), 303)
        self._set_cookie(answer, BEGUN_COOKIE, token, BEGUN_S, PATH)
        return answer

    async def _come_back(self, request: Request, provider: IdentityProvider) -> Response:
        """Signs in whoever comes from the provider. The code leaves the address bar with the redirect."""
        client, now = provider.client, self._clock()
        kept = self._begun.take(cookie_of(request.headers, BEGUN_COOKIE), now)
        try:
            begun, code = code_of(kept, client.issuer, dict(request.query_params))
            tokens = await provider.tokens(begun, code)
            until = end_of(tokens.claims, begun, client, now)
        except SignInFailed as error:
            answer: Response = self._form(f"{error}.", 502 if isinstance(error, ProviderFailed) else 403)
        else:
            answer = await self._try(tokens.id_token, until, f"the token of {client.issuer}", tokens)
        answer.delete_cookie(BEGUN_COOKIE, path=PATH)
        return answer

    async def _try(
        self, key: str, until: float = math.inf, what: str = "this key", tokens: Tokens | None = None
    ) -> Response:
        await self._connections.drop_ended(self._clock())
        try:
            await self._connections.of(key, until).learn()
        except ApiError as error:
            await self._connections.forget(key)
            return self._form(f"Control refused {what}: {error}", 403)
        except ClientError as error:
            await self._connections.forget(key)
            return self._form(f"Control cannot be asked: {error}", 502)
        token, now = secrets.token_urlsafe(32), self._clock()
        until = self._sessions.sign_in(key, token, now, until)
        renewed = False
        if tokens is not None and self._renewals is not None:
            renewed = self._renewals.keep(digest(token), tokens, until)
        answer = RedirectResponse("/", 303)
        self._set_cookie(answer, COOKIE, token, SESSION_S if renewed else until - now, "/")
        return answer

    def _set_cookie(self, answer: Response, name: str, token: str, seconds: float, path: str) -> None:
        answer.set_cookie(
            name,
            token,
            max_age=int(seconds),
            path=path,
            httponly=True,
            samesite="lax",
            secure=self._secure,
        )

    def _form(self, wrong: str = "", status: int = 200) -> HTMLResponse:
        about = (
            f"The page of {html.escape(self._connections.url)}. <code>stoker key create</code> makes a key."
        )
        note = f'<p class="wrong" role="alert">{html.escape(wrong)}</p>' if wrong else ""
        link = ""
        if self._provider is not None:
            host = html.escape(urlsplit(self._provider.client.issuer).netloc)
            link = f'<a class="provider" href="{PATH}/provider">Sign in at {host}</a>'
        return HTMLResponse(_FORM.format(about=about, wrong=note, provider=link), status)
