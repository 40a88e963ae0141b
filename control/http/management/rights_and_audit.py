"""The outermost layer of both management APIs: checks the key and its rights, and writes the audit log.

    documentation? ─yes─> inside    key? ─no─> 401    begins a line, if it changes or tells a secret
    allowed? ─no─> 401, v2 403      inside ──> ends the line ──> answer

An answer is sent when its line is complete. If the end of the line cannot be stored, the begun line stays,
and the rest is logged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.control.errors import ControlError, Forbidden
from stoker.control.http.management.operations.caller import READING, known
from stoker.control.plane import Plane
from stoker.control.resources.audit import Audit
from stoker.control.rules.access import Caller

log = logging.getLogger(__name__)

OPEN = ("/openapi.json", "/docs")
"""The paths that need no key: the documentation."""

OWN = "/self"
"""The path that every key may read: its own rights."""

TELLING = ("/webhooksecret",)
"""The paths of secrets: reading one writes a line as a change does."""

_OF_ENDPOINT = re.compile(
    r"/(?:endpoints/([^/]+)/(?:health|statistics)|(?:endpoints|serverless)/([^/]+)/workers/[^/]+/logs)"
)
"""The paths that keys may read that may look at the endpoint."""


class Audited:
    """The check of rights, and the audit of changes. `refused` renders what it refuses."""

    def __init__(self, plane: Plane, inside: ASGIApp, refused: Callable[[ControlError], Response]) -> None:
        self._plane, self._inside, self._refused = plane, inside, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        inner = path.removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or inner in OPEN:
            await self._inside(scope, receive, send)
            return
        request = Request(scope, receive)
        written = request.method not in READING or inner in TELLING
        line = _Line(self._plane.management.audit, request.method, path, send, written=written)
        try:
            request.state.caller = line.caller = await known(request)
            await line.begin(line.caller)
            self._check_right(line.caller, request.method, inner)
        except ControlError as error:
            await self._refused(error)(scope, receive, line.send)
            return
        await self._inside(scope, receive, line.send)

    def _check_right(self, caller: Caller, method: str, path: str) -> None:
        writes = method not in READING
        if not writes and (path == OWN or self._is_of_endpoint(caller, path)):
            return
        if caller.access.scope == "pod":
            if not caller.access.is_own_pod(method, path):
                raise Forbidden(f"this key is of pod {caller.access.pod}: it may read and stop that, no more")
        elif not caller.access.may(write=writes):
            what = "change anything" if writes else "look at anything"
            raise Forbidden(f"this key may not {what} here; `stoker key create` makes one that may")

    def _is_of_endpoint(self, caller: Caller, path: str) -> bool:
        """Returns whether the path is the health, the statistics, or the log of a worker, of an endpoint that
        the key may look at."""
        named = _OF_ENDPOINT.fullmatch(path)
        endpoint = self._plane.endpoints.named(named[1] or named[2]) if named else None
        if endpoint is None or caller.access.scope == "pod":
            return False
        return caller.access.may(write=False, endpoint=endpoint.rights)


class _Line:
    """The audit line of one call. `send` holds the start of the answer back until the line is written."""

    def __init__(self, audit: Audit, method: str, path: str, send: Send, *, written: bool) -> None:
        self.caller: Caller | None = None
        self._written, self._audit, self._method = written, audit, method
        self._path, self._send = path, send
        self._number: int | None = None
        self._start: Message | None = None

    async def begin(self, caller: Caller) -> None:
        if self._written:
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
        message = _message(body) if status >= 400 else ""
        try:
            if self._number is not None:
                await self._audit.end(self._number, status, message)
            elif status in (401, 403):
                await self._audit.refused(self.caller, self._method, self._path, status, message)
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


def _message(body: bytes) -> str:
    """Returns the message of an error's body."""
    try:
        return str(orjson.loads(body)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
