"""The local server: its routes are those of the app, and are replaced when the app changes.

    GET /        what is served, and what is wrong with the app        GET /docs    the API explorer
    GET /ping    {"status": "healthy"}                                 the app's own routes: `routing`

| status | when |
|---|---|
| 400 | the body is wrong, as for a deployed endpoint; the message names the field |
| 403 | a page of another site or port made a browser send it, or the Host header is not this server's |
| 413 | the body is larger than a request to the platform may be |
| 500 | the function raised, with its traceback; or the file of the route has a problem, which is shown |
| 502 | the platform cannot be reached |
| 503 | the endpoint cannot be provisioned, or has no worker |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from fastapi.openapi.docs import get_swagger_ui_html
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from stoker.app_values import ValueRefused
from stoker.cli.dev.local_server import openapi
from stoker.cli.dev.local_server.callers import Callers
from stoker.cli.dev.local_server.calls import BrokenOff, Calls, StreamedResponse
from stoker.cli.dev.local_server.requests import BodyRefused, BodyTooLarge, arguments
from stoker.cli.dev.local_server.routing import LocalRoute
from stoker.cli.dev.project import Project
from stoker.cli.errors import CliError
from stoker.cli.jobs import text as job_text
from stoker.client import ClientError, Unreachable
from stoker.client.apps.by_name import CALL
from stoker.client.apps.resources import LIVE_PREFIX
from stoker.control.http.calls.explorer import ASSETS, assets

T = TypeVar("T")

BODY_BYTES_MAX = 30 << 20
GONE = 499
"""Of an answer that is not received: the caller has closed its connection."""

Handler = Callable[[Request], Awaitable[Response]]


class LocalServer:
    """An ASGI application. `states` are those of the live endpoints that were provisioned, by name."""

    def __init__(self, calls: Calls, states: dict[str, str], callers: Callers) -> None:
        self._calls, self._states, self._callers = calls, states, callers
        self._router = Router()
        self._project: Project
        self._routes: Sequence[LocalRoute] = ()
        self.refresh: Callable[[], Awaitable[None]] = _as_it_is
        """Called before each request is routed: it may serve other routes."""

    def serve(self, project: Project, routes: Sequence[LocalRoute]) -> None:
        """Serves these routes from now on; requests that have begun end as they are."""
        self._project, self._routes = project, routes
        own: list[BaseRoute] = [
            Route("/", self._index),
            Route("/ping", self._ping),
            Route("/docs", self._docs),
            Route("/openapi.json", self._document),
            Route(CALL, self._call, methods=["POST"]),
            assets(),
        ]
        apps = [Route(one.path, self._handler(one), methods=[one.method]) for one in routes]
        self._router = Router([*own, *apps], redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response: Response
        refusal = self._callers.refusal(Headers(scope=scope))
        if refusal is not None:
            await _error(403, refusal)(scope, receive, send)
            return
        await self.refresh()
        try:
            # With an application in its scope, the router raises what it would answer as text.
            await self._router({**scope, "app": self}, receive, send)
            return
        except HTTPException as error:
            response = self._no_route(scope["method"], scope["path"], error.status_code)
        except BodyTooLarge as error:
            response = _error(413, str(error))
        except BodyRefused as error:
            response = _error(400, str(error))
        except Unreachable as error:
            response = _error(502, str(error))
        except (ClientError, CliError) as error:
            response = _error(503, str(error))
        await response(scope, receive, send)

    # -- the server's own routes

    async def _index(self, request: Request) -> Response:
        endpoints = [
            {
                "name": LIVE_PREFIX + one.name,
                "state": self._states.get(LIVE_PREFIX + one.name, "not provisioned yet"),
                "routes": [f"{each.method} {each.path}" for each in self._routes if each.served is one],
            }
            for one in self._project.endpoints
        ]
        problems = [str(one) for one in self._project.problems]
        return JSONResponse(
            {
                "message": "Stoker development server",
                "docs": "/docs",
                "endpoints": endpoints,
                "problems": problems,
            }
        )

    async def _ping(self, request: Request) -> Response:
        return JSONResponse({"status": "healthy"})

    async def _docs(self, request: Request) -> Response:
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Stoker development server",
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon.png",
            swagger_ui_parameters={"validatorUrl": None},
        )

    async def _document(self, request: Request) -> Response:
        return JSONResponse(openapi.document(self._routes))

    def _no_route(self, method: str, path: str, status: int) -> Response:
        """Returns the response to a request that no route takes. If the file that served the path has a
        problem now, the response is the problem."""
        parts = path.strip("/").split("/")
        for end in range(len(parts), 0, -1):
            problem = self._project.problem_of("/".join(parts[:end]))
            if problem is not None:
                return _error(500, str(problem))
        known = [f"{one.method} {one.path}" for one in self._routes]
        return _error(status, f"there is no {method} {path}; there are {', '.join(known) or 'no routes'}")

    async def _call(self, request: Request) -> Response:
        """Calls the function that a file and a name tell apart."""
        file, name = Path(request.query_params.get("file", "")), request.query_params.get("function", "")
        root = self._project.root.resolve()
        for route in self._routes:
            path = (root / route.served.endpoint.path).resolve()
            if route.route is None and route.function.qualname == name and path == file:
                return await self._handler(route)(request)
        inside = file.is_relative_to(root)
        problem = self._project.problem_of(str(file.relative_to(root).with_suffix(""))) if inside else None
        return _error(404, str(problem or f"no function {name} of {file} is served from {root}"))

    # -- the app's routes

    def _handler(self, route: LocalRoute) -> Handler:
        async def handle(request: Request) -> Response:
            body = await _body(request)
            work = self._function(route, body) if route.route is None else self._route(route, request, body)
            return await _unless_caller_leaves(request, work) or Response(status_code=GONE)

        return handle

    async def _function(self, route: LocalRoute, body: bytes) -> Response:
        kwargs = arguments(body, route.function)
        try:
            record = await self._calls.call(route.served, route.function.qualname, kwargs)
        except ValueRefused as error:
            raise BodyRefused(str(error)) from None
        return JSONResponse(job_text.wire_record(record), 200 if record.succeeded else 500)

    async def _route(self, route: LocalRoute, request: Request, body: bytes) -> Response:
        path = request.url.path.removeprefix(f"/{route.served.endpoint.prefix}")
        answer = await self._calls.request(
            route.served,
            method=request.method,
            path=path,
            query=request.url.query,
            headers=dict(request.headers),
            body=body,
        )
        if isinstance(answer, StreamedResponse):
            return _Streamed(answer)
        return Response(answer.body, answer.status, dict(answer.headers))


class _Streamed(StreamingResponse):
    """The parts of a route's response as they come. Where they break off, the response has no end, and the
    server closes its connection."""

    def __init__(self, answer: StreamedResponse) -> None:
        super().__init__(answer.parts, answer.head.status, dict(answer.head.headers))
        self._close = answer.close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self.stream_response(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with suppress(BrokenOff):
                    sending.result()
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.wait((sending, leaving))
            await self._close()


async def _as_it_is() -> None:
    """Leaves the routes as they are."""


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)


async def _body(request: Request) -> bytes:
    """Raises BodyTooLarge for one that the platform would refuse."""
    parts, total = [], 0
    async for part in request.stream():
        total += len(part)
        if total > BODY_BYTES_MAX:
            raise BodyTooLarge(f"the body is larger than {BODY_BYTES_MAX >> 20} MiB; large values go by URL")
        parts.append(part)
    return b"".join(parts)


async def _unless_caller_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Returns the result of `work`; None if the caller has left meanwhile, and the work was cancelled."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_left(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait((working, leaving))


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
