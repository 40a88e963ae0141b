"""The guard in front of every request of the page: hosts, origins, sessions and headers.

- `Host` must be an allowed name, so that no page elsewhere reaches this one under a name of its own (DNS
  rebinding).
- A request that changes something, and a WebSocket, must have the same `Origin` (or none, and no foreign
  `Sec-Fetch-Site`): another page's form or script does nothing here.
- Everything but the sign-in and the library's files needs a session; others are sent to sign in.
- Scripts run only from this process, or with the nonce of the response. NiceGUI compiles templates, which
  needs `unsafe-eval`; text of users is never a template.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "stoker-page"
OPEN = ("/sign-in", "/_nicegui/", "/favicon.ico")
"""Paths for browsers that have not signed in: the form, and the library's own files."""

SAFE_METHODS = frozenset({"GET", "HEAD"})


def why_refused(headers: Mapping[str, str], *, changes: bool, allowed: frozenset[str]) -> str:
    """Returns why a request is refused, or an empty text. Header names are in lower case."""
    host = headers.get("host", "")
    name = urlsplit(f"//{host}").hostname or ""
    if name not in allowed and not _is_loopback(name):
        return f"this page is not served under the name {name[:100]!r}; start it with --name {name[:100]}"
    if not changes:
        return ""
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return "a request from another page is refused"
    if origin is None and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return "a request from another page is refused"
    return ""


def policy(nonce: str) -> str:
    """Returns the Content-Security-Policy of a page. Pictures and films come from wherever control stores
    them."""
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob: http: https:",
            "media-src 'self' data: blob: http: https:",
            "connect-src 'self'",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def token_of(headers: Mapping[str, str]) -> str:
    """Returns the token of the session in the request's cookie, or an empty text."""
    return cookie_of(headers, COOKIE)


def cookie_of(headers: Mapping[str, str], name: str) -> str:
    """Returns the cookie of this name, or an empty text."""
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


class Guard:
    """An ASGI application around the page's. `signed_in` says whether a token names a session."""

    def __init__(self, app: ASGIApp, signed_in: Callable[[str], bool], allowed: frozenset[str]) -> None:
        self._app, self._signed_in, self._allowed = app, signed_in, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        if why := why_refused(headers, changes=changes, allowed=self._allowed):
            await _refuse(scope, receive, send, why)
        elif scope["path"].startswith(OPEN) or self._signed_in(token_of(headers)):
            await self._app(scope, receive, _Answer(send))
        elif scope["type"] == "websocket" or changes:
            await _refuse(scope, receive, send, "sign in first")
        else:
            await RedirectResponse("/sign-in", 303)(scope, receive, send)


class _Answer:
    """The sender of one response, with the headers of the guard. A script in a page gets the nonce."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._html: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._start(message)
        elif message["type"] == "http.response.body" and self._html is not None:
            await self._body(message)
        else:
            await self._send(message)

    async def _start(self, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        headers["Content-Security-Policy"] = policy(self._nonce)
        headers["X-Content-Type-Options"] = "nosniff"
        headers["X-Frame-Options"] = "DENY"
        headers["Referrer-Policy"] = "same-origin"  # with "no-referrer" a form sends `Origin: null`
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        if headers.get("content-type", "").startswith("text/html"):
            headers["Cache-Control"] = "no-store"
            self._html = message
        else:
            await self._send(message)

    async def _body(self, message: Message) -> None:
        """Sends a page, which the library sends in one piece, with the nonce in its script tags. In the data
        of a page `<` is escaped, so no text of a user is such a tag."""
        assert self._html is not None
        marked = f'<script nonce="{self._nonce}"'.encode()
        body = message.get("body", b"").replace(b"<script", marked)
        MutableHeaders(scope=self._html)["Content-Length"] = str(len(body))
        start, self._html = self._html, None
        await self._send(start)
        await self._send({**message, "body": body})


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": why})
    else:
        await PlainTextResponse(f"{why}\n", 403)(scope, receive, send)


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
