"""The way in: a route of FastAPI that admits a call, runs its operation, and turns what it raises into JSON.

path known? ─no─> the gateway, 404   method? ─no─> 405
key? ─no─> 401   endpoint? ─no─> 404   may it? ─no─> 401   below its limits? ─no─> 429
                                                                    │yes
                                             parameters? ─no─> 400  answer <── operation

Only authenticated callers of existing endpoints are counted, each until its answer was written. What is held,
and event streams, end with the caller's key (`control.auth.while_valid`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stoker.control.auth.while_valid import while_valid
from stoker.control.bodies import CallerLeft
from stoker.control.errors import BadRequest, ControlError
from stoker.control.http.calls.answers import Answer, error_answer, method_not_allowed, stopping, unexpected
from stoker.control.http.calls.calls import Call, may_not
from stoker.control.http.calls.documented import of_operation
from stoker.control.http.calls.event_stream import EventAnswer
from stoker.control.rules.access import Caller

CALL = "stoker.call"
Runs: TypeAlias = Callable[[Any], Coroutine[Any, Any, Response]]


class OperationRoute(APIRoute):
    """An operation of a queue endpoint. `held`: its answer may take long, and is not given to a key that has
    ended meanwhile."""

    writes = False
    held = False

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.operation = path.removeprefix("/v2/{endpoint_id}").split("/")[1].partition("{")[0]
        super().__init__(
            path, endpoint, **of_operation(self.operation, path, endpoint.__doc__ or "", options)
        )
        # Starlette's own pattern takes a line break at the end of a path for none.
        exact = self.path_regex.pattern.removesuffix("$").replace(".*", "/.+") + r"\Z"
        self.path_regex = re.compile(exact, re.DOTALL)
        # Where the request is all that an operation takes, it is called without FastAPI's search for more.
        self._plain = not get_flat_params(self.dependant)
        self._searched = AsyncExitStackMiddleware(self.app)

    def shaped(self, refusal: Answer) -> Answer:
        """Returns an answer that refuses, in the shape that callers of this route read."""
        return refusal

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request. An answer that has begun can only be broken off."""
        if scope["method"] not in (self.methods or ()):
            refusal = self.shaped(method_not_allowed(scope["router"].routes, scope))
            await refusal(scope, receive, send)
            return
        call = Call(scope, receive)
        try:
            if self._plain:
                answer = await self._answered(call, self.endpoint)
                await answer(scope, call.next_message, send)
            else:
                scope[CALL] = call
                await self._searched(scope, call.next_message, send)
        except CallerLeft:
            return
        except Exception as error:
            unexpected(error)
        finally:
            scope.pop(CALL, None)  # with it, both are a ring, which waits for the garbage collector
            if call.admission is not None:
                call.admission.leave()

    def get_route_handler(self) -> Runs:
        run = super().get_route_handler()

        async def answered(request: Request) -> Response:
            return await self._answered(request.scope[CALL], run)

        return answered

    async def _answered(self, call: Call, run: Runs) -> Response:
        """Returns what the operation answers, or the refusal of the call."""
        try:
            await self._admit(call)
            if self.held:
                async with self._while_valid(call):
                    answer = await run(call)
            else:
                answer = await run(call)
            if isinstance(answer, EventAnswer):
                return replace(answer, while_valid=partial(self._while_valid, call))
            return answer
        except CallerLeft:
            raise
        except ControlError as error:
            return self.shaped(error_answer(error))
        except RequestValidationError as error:
            return self.shaped(error_answer(BadRequest(_sentence(error.errors()[0]))))
        except asyncio.CancelledError:
            # The server cancels what is still held when it stops. The caller is asked to try again, and the
            # request's task ends with that.
            return self.shaped(stopping())
        except Exception as error:
            return self.shaped(unexpected(error))

    async def _admit(self, call: Call) -> None:
        """Finds the caller and the endpoint, and counts the call. Raises ControlError."""
        call.caller = await call.plane.callers.find(call.header(b"authorization"))
        call.endpoint = call.plane.endpoints.find(call.caller.account, call.path_params["endpoint_id"])
        if not call.caller.access.may(write=self.writes, endpoint=call.endpoint.rights):
            raise may_not(call, write=self.writes)
        if (rates := call.shared.rates) is not None:  # an alias counts as the endpoint that it stands for
            now_ms = call.settings.now_ns() // 1_000_000
            account, endpoint = call.caller.account, call.endpoint.id
            call.admission = rates.enter(account, endpoint, self.operation, now_ms)

    def _while_valid(self, call: Call) -> AbstractAsyncContextManager[None]:
        def may(caller: Caller) -> bool:
            return caller.access.may(write=self.writes, endpoint=call.endpoint.rights)

        return while_valid(call.plane.callers, call.header(b"authorization"), may)


def _sentence(error: dict[str, Any]) -> str:
    """Returns what a parameter's own check said, or that the parameter is missing."""
    found = error.get("ctx", {}).get("error")
    return f"{error['loc'][-1]} is required" if found is None else str(found)


class Writing(OperationRoute):
    writes = True


class Held(OperationRoute):
    held = True
