"""The way in to the management API: who asks, may they, and a line of the audit log for what they change.

    documentation? ─yes─> inside    key? ─no─> 401    begins a line, where this changes something
    may it? ─no─> 401               inside ──> ends the line ──> answer

An answer goes out when its line is complete. Where that cannot be stored, the line that was begun stays, and
what it lacks is logged.
"""

from __future__ import annotations

import logging

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.control.access import Caller
from stoker.control.api.management.caller import READING, known
from stoker.control.api.management.refusals import refused
from stoker.control.errors import ControlError, Unauthorized
from stoker.control.management.audit import Audit
from stoker.control.plane import Plane

log = logging.getLogger(__name__)

OPEN = ("/openapi.json", "/docs")
"""Paths that take no key: they tell how to get on."""


class Audited:
    def __init__(self, plane: Plane, inside: ASGIApp) -> None:
        self._plane = plane
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if scope["type"] != "http" or path.removeprefix(scope.get("root_path", "")) in OPEN:
            await self._inside(scope, receive, send)
            return
        request = Request(scope, receive)
        line = _Line(self._plane.management.audit, request.method, path, send)
        try:
            request.state.caller = line.caller = await known(request)
            await line.begin(line.caller)
            _check_right(line.caller, request.method)
        except ControlError as error:
            await refused(error)(scope, receive, line.send)
            return
        await self._inside(scope, receive, line.send)


def _check_right(caller: Caller, method: str) -> None:
    writes = method not in READING
    if not caller.access.manages(write=writes):
        what = "change anything" if writes else "look at anything"
        raise Unauthorized(f"this key may not {what} here; `stoker key create` makes one that may")


class _Line:
    """One call's line. `send` holds the answer's start back until the line is written."""

    def __init__(self, audit: Audit, method: str, path: str, send: Send) -> None:
        self.caller: Caller | None = None
        self._audit = audit
        self._method = method
        self._path = path
        self._send = send
        self._number: int | None = None
        self._start: Message | None = None

    async def begin(self, caller: Caller) -> None:
        if self._method not in READING:
            self._number = await self._audit.begin(caller, self._method, self._path)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._start is not None:
            start, self._start = self._start, None
            await self._end(start["status"], message.get("body", b""))
            await self._send(start)
        await self._send(message)

    async def _end(self, status: int, body: bytes) -> None:
        said = _said(body) if status >= 400 else ""
        try:
            if self._number is not None:
                await self._audit.end(self._number, status, said)
            elif status == 401:
                await self._audit.refused(self.caller, self._method, self._path, status, said)
        except ControlError as error:
            who = self.caller.key if self.caller else "unknown"
            log.error(
                "not in the audit log: %s %s by key %s, answered %d: %s",
                self._method,
                self._path,
                who,
                status,
                error,
            )


def _said(body: bytes) -> str:
    """The sentence of a refusal."""
    try:
        return str(orjson.loads(body)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
