"""The way in: finds the operation, the account and the endpoint, runs it, and turns what it raises into JSON.

path known? ─no─> the application's own routes: /docs, /ping, 404
    │yes
method? ─no─> 405   key? ─no─> 401   endpoint? ─no─> 404   may it? ─no─> 401   below its limits? ─no─> 429
                                                                                    │yes
                                                                         answer <── operation

Only authenticated callers of existing endpoints are counted, each until its answer was written. What is held,
and event streams, end with the caller's key (`control.auth.while_valid`).
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from urllib.parse import parse_qs

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.control.auth.rate_limits import Rates
from stoker.control.auth.while_valid import while_valid
from stoker.control.bodies import Bodies, CallerLeft
from stoker.control.errors import ControlError, Unauthorized
from stoker.control.http.calls.answers import Answer, error_body, json_answer, stopping, unexpected
from stoker.control.http.calls.calls import Call, may_not
from stoker.control.http.calls.event_stream import EventAnswer
from stoker.control.http.calls.operations import Operation, Operations, Response
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.plane import Plane
from stoker.control.rules.access import Caller

PREFIX = "v2"
CLOSE_S = 1.0


class OperationRouter:
    """The application: `otherwise` handles what is not an operation."""

    def __init__(
        self, plane: Plane, operations: Operations, settings: ApiSettings, otherwise: ASGIApp
    ) -> None:
        self._plane = plane
        self._table = operations.table
        self._bodies = Bodies(settings.spool)
        self._now_ns = settings.now_ns
        self._rates = (
            Rates(settings.requests_per_worker, plane.cluster.ready_workers) if settings.rate_limits else None
        )
        self._below = f".{settings.gateway_domain}" if settings.gateway_domain else ""
        self.otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._find(scope["path"]) if scope["type"] == "http" else None
        if self._below and found is not None and _host(scope).endswith(self._below):
            found = None
        if found is None:
            await self._pass_on(scope, receive, send)
            return
        name, endpoint, job = found
        call = Call(scope, receive, job, self._bodies)
        try:
            answer = await self._answer(call, name, endpoint)
            if isinstance(answer, EventAnswer):
                async with self._while_valid(call, self._table[name]):
                    await answer(scope, call.next_message, send)
            else:
                await answer(scope, call.next_message, send)
        except CallerLeft:
            return
        except Unauthorized:  # a stream whose key has ended is closed as one whose job has not
            await _close(send)
        except Exception as error:
            unexpected(error)  # logged: an answer that has begun can only be broken off
        finally:
            if call.admission is not None:
                call.admission.leave()

    async def _answer(self, call: Call, name: str, endpoint: str) -> Response:
        """Returns what this operation answers, or the refusal of the call."""
        operation, method = self._table[name], call.scope["method"]
        try:
            if method not in operation.methods:
                return method_not_allowed(method, operation.methods)
            call.caller = await self._plane.callers.find(call.header(b"authorization"))
            call.endpoint = self._plane.endpoints.find(
                call.caller.account, endpoint, of_queue=operation.of_queue
            )
            if not call.caller.access.may(write=operation.writes, endpoint=call.endpoint.id):
                raise may_not(call, write=operation.writes)
            if self._rates is not None:  # an alias counts as the endpoint that it stands for
                now_ms = self._now_ns() // 1_000_000
                call.admission = self._rates.enter(call.caller.account, call.endpoint.id, name, now_ms)
            if query := call.scope["query_string"]:
                call.query = parse_qs(query.decode("latin-1"), keep_blank_values=True)
            if operation.held:
                async with self._while_valid(call, operation):
                    response = await operation.handle(call)
            else:
                response = await operation.handle(call)
            return (
                Answer(orjson.dumps(response), 200, call.ignored) if isinstance(response, dict) else response
            )
        except CallerLeft:
            raise
        except ControlError as error:
            return operation.refuse(error)
        except asyncio.CancelledError:
            # The server cancels what is still held when it stops. The caller is asked to try again, and the
            # request's task ends with that.
            return stopping()
        except Exception as error:
            return unexpected(error)

    def _while_valid(self, call: Call, operation: Operation) -> AbstractAsyncContextManager[None]:
        def may(caller: Caller) -> bool:
            return caller.access.may(write=operation.writes, endpoint=call.endpoint.id)

        return while_valid(self._plane.callers, call.header(b"authorization"), may)

    def _find(self, path: str) -> tuple[str, str, str] | None:
        """Returns the operation, the endpoint, and the job or further path that the path names; None for
        other paths."""
        parts = path.split("/", 4)
        if len(parts) not in (4, 5) or parts[1] != PREFIX or not parts[2]:
            return None
        operation = self._table.get(parts[3])
        job = parts[4] if len(parts) == 5 else ""
        if operation is not None and operation.takes_path and job:
            return parts[3], parts[2], f"/{job}"
        if "/" in job:
            return None
        if operation is None or operation.takes_job != bool(job) or (len(parts) == 5 and not job):
            return None
        return parts[3], parts[2], job

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what is not an operation. An answer that has begun can only be broken off, not
        replaced."""
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.otherwise(scope, receive, noted)
        except asyncio.CancelledError:
            if begun or scope["type"] != "http":
                raise
            await stopping()(scope, receive, send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            answer = unexpected(error)
            if not begun:
                await answer(scope, receive, send)


async def _close(send: Send) -> None:
    """Ends a response that has begun; a reader that takes nothing is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await send({"type": "http.response.body", "body": b""})


def _host(scope: Scope) -> str:
    """Returns the Host header in lower case, without its port."""
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower().rstrip(".")


def method_not_allowed(method: str, allowed: tuple[str, ...]) -> Answer:
    message = f"{method} is not allowed here; allowed: {', '.join(allowed)}"
    refused = json_answer(error_body(405, message), 405)
    return Answer(refused.body, 405, headers=((b"allow", ", ".join(allowed).encode()),))
