"""The outermost layer of the application, which answers what nothing inside it could."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, FastAPI
from starlette.types import Message, Receive, Scope, Send

from stoker.control.http.calls.answers import stopping, unexpected
from stoker.control.http.calls.request_ids import REQUEST, request_id, with_id


class Front:
    """`operations` has their routes, and passes on the rest: at once what is sent to names below `domain`."""

    def __init__(self, app: FastAPI, operations: APIRouter, domain: str = "") -> None:
        self.app = app
        self._operations = operations
        self._domain = domain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request. An answer that has begun can only be broken off, not replaced."""
        begun = False
        own = request_id(scope.get("headers", ()))
        if scope["type"] in ("http", "websocket"):
            scope["headers"] = with_id(scope["headers"], own)
        token = REQUEST.set(own.decode())

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] in ("http.response.start", "websocket.accept"):
                message["headers"] = with_id(message.get("headers", ()), own)
            await send(message)

        below = self._domain and scope["type"] == "http" and _is_below(self._domain, scope)
        try:
            await (self._operations.default if below else self._operations)(scope, receive, noted)
        except asyncio.CancelledError:
            if begun or scope["type"] != "http":
                raise
            await stopping()(scope, receive, noted)
        except Exception as error:
            if scope["type"] != "http":
                raise
            answer = unexpected(error)
            if not begun:
                await answer(scope, receive, noted)
        finally:
            REQUEST.reset(token)


def _is_below(domain: str, scope: Scope) -> bool:
    """Returns whether the Host header is one label and the domain, as the gateway reads it."""
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    name, colon, port = host.rpartition(":")
    label, _, rest = (name if colon and port.isdecimal() else host).lower().rstrip(".").partition(".")
    return bool(label) and rest == domain
