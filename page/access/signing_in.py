"""Signing in and out: plain HTML forms and a cookie, without a script.

The cookie is HttpOnly and SameSite=Lax, and Secure where the page is served over TLS. It holds a random
token; the key stays in this process. A link with a one-time token signs in without a key to type.
"""

from __future__ import annotations

import html
import secrets
import time
from collections.abc import Callable

from fastapi import FastAPI, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from stoker.client.errors import ApiError, ClientError
from stoker.page.access.connections import Connections
from stoker.page.access.guard import COOKIE, token_of
from stoker.page.access.sessions import SESSION_S, Sessions

_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sign in · Stoker</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; min-height: 90vh; margin: 0; }}
body {{ display: grid; place-items: center; }}
form {{ display: grid; gap: 12px; width: min(22rem, 90vw); }}
input, button {{ font: inherit; padding: 8px 12px; border-radius: 6px; border: 1px solid #64748b; }}
button {{ background: #c2410c; color: white; border: 0; cursor: pointer; }}
p {{ margin: 0; }} .wrong {{ color: #b91c1c; }}
@media (prefers-color-scheme: dark) {{ .wrong {{ color: #fca5a5; }} }}
</style></head><body><main><form method="post" action="/sign-in">
<h1 style="margin:0">Stoker</h1><p>{about}</p>{wrong}
<label for="key">API key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button></form></main></body></html>"""


def add_signing_in(
    app: FastAPI,
    sessions: Sessions,
    connections: Connections,
    *,
    secure: bool,
    clock: Callable[[], float] = time.time,
) -> None:
    """Adds the routes of signing in and out."""

    def signed_in(key: str) -> Response:
        token = secrets.token_urlsafe(32)
        sessions.sign_in(key, token, clock())
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, token, max_age=int(SESSION_S), httponly=True, samesite="lax", secure=secure)
        return answer

    def form(wrong: str = "", status: int = 200) -> HTMLResponse:
        about = f"The page of {html.escape(connections.url)}. <code>stoker key create</code> makes a key."
        note = f'<p class="wrong" role="alert">{html.escape(wrong)}</p>' if wrong else ""
        return HTMLResponse(_FORM.format(about=about, wrong=note), status)

    @app.get("/sign-in")
    async def ask(token: str = "") -> Response:
        if not token:
            return form()
        key = sessions.redeem(token, clock())
        if key is None:
            return form("This link was used before, or is older than ten minutes. Sign in with a key.", 403)
        return await try_key(key)

    @app.post("/sign-in")
    async def sign_in(key: str = Form(max_length=4096)) -> Response:
        return await try_key(key.strip())

    async def try_key(key: str) -> Response:
        try:
            await connections.of(key).learn()
        except ApiError as error:
            await connections.forget(key)
            return form(f"Control refused this key: {error}", 403)
        except ClientError as error:
            await connections.forget(key)
            return form(f"Control cannot be asked: {error}", 502)
        return signed_in(key)

    @app.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        sessions.sign_out(token_of(request.headers))
        answer = RedirectResponse("/sign-in", 303)
        answer.delete_cookie(COOKIE)
        return answer
