"""The way in: finds the operation, the account and the endpoint, runs it, and turns what it raises into JSON.

path known? ─no─> the application's own routes: /docs, /ping, 404
    │yes
method? ─no─> 405   key? ─no─> 401   endpoint? ─no─> 404   may it? ─no─> 401   below its limits? ─no─> 429
                                                                                    │yes
                                                                         answer <── operation

Only who is known, at an endpoint that exists, is counted. Its place is taken until its answer was written.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.control.api.answers import Answer, error_answer, error_body, json_answer, stopping, unexpected
from stoker.control.api.calls import Call, CallerLeft
from stoker.control.api.limits import Limits
from stoker.control.api.operations import Given, Operation, Operations
from stoker.control.api.seam import PlaneApi
from stoker.control.errors import ControlError, Unauthorized

PREFIX = "v2"


class Door:
    def __init__(self, plane: PlaneApi, operations: Operations, limits: Limits, otherwise: ASGIApp) -> None:
        self._plane = plane
        self._limits = limits
        self._table = operations.table
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._otherwise(scope, receive, send)
            return
        sending = _Sending(send)
        try:
            await self._pass(scope, receive, sending)
        except CallerLeft:
            return
        except asyncio.CancelledError:
            # The server cancels what is still held when it stops. The caller is told to come back, and the
            # request's task ends with that; an answer that had begun can only be broken off.
            if not await sending.instead(stopping(), scope, receive):
                raise
        except Exception as error:
            await sending.instead(unexpected(error), scope, receive)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._find(scope["path"])
        if found is None:
            await self._otherwise(scope, receive, send)
            return
        operation, name, endpoint, job = found
        call = Call(scope, receive, name, endpoint, job)
        try:
            answer = await self._answer(operation, call)
            await answer(scope, call.hear, send)
        finally:
            call.leave()

    async def _answer(self, operation: Operation, call: Call) -> Given:
        method = call.scope["method"]
        if method not in operation.methods:
            return method_not_allowed(method, operation.methods)
        try:
            await self._admit(call, operation.writes)
            return await operation.handle(call)
        except ControlError as error:
            return error_answer(error)

    def _find(self, path: str) -> tuple[Operation, str, str, str] | None:
        """The operation; its name, the endpoint and the job that the path names."""
        parts = path.split("/")
        if len(parts) not in (4, 5) or parts[1] != PREFIX or not parts[2]:
            return None
        operation = self._table.get(parts[3])
        job = parts[4] if len(parts) == 5 else ""
        if operation is None or operation.takes_job != bool(job) or (len(parts) == 5 and not job):
            return None
        return operation, parts[3], parts[2], job

    async def _admit(self, call: Call, writes: bool) -> None:
        caller = await self._plane.find_caller(call.key())
        if caller is None:
            raise Unauthorized("invalid api key")
        call.account, call.access = caller.account, caller.access
        call.target = self._plane.endpoints.find(caller.account, call.endpoint)
        call.allow(write=writes)
        self._limits.enter(call, call.target.id)


def method_not_allowed(method: str, allowed: tuple[str, ...]) -> Answer:
    message = f"{method} is not allowed here; allowed: {', '.join(allowed)}"
    refused = json_answer(error_body(405, message), 405)
    return Answer(refused.body, 405, headers=((b"allow", ", ".join(allowed).encode()),))


class _Sending:
    """Knows whether an answer has begun: after that it can only be broken off, not replaced."""

    __slots__ = ("_begun", "_send")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False

    async def __call__(self, message: Message) -> None:
        self._begun = True
        await self._send(message)

    async def instead(self, answer: Answer, scope: Scope, receive: Receive) -> bool:
        if self._begun:
            return False
        await answer(scope, receive, self._send)
        return True
