"""Serves the worker protocol over HTTP on loopback: one server for all protocol workers of an agent. A worker
in a network of its own finds the server at the same port of its own loopback.

    GET  /v2/{endpoint}/job-take/{worker}         held; one job, or 204
    GET  /v2/{endpoint}/job-take-batch/{worker}   held; a list of at most `batch_size` jobs, or 204
    GET  /v2/{endpoint}/job-stop/{worker}         held; {"jobsToStop": [...]}, or 204
    GET  /v2/{endpoint}/ping/{worker}             200
    POST /v2/{endpoint}/job-stream/{worker}/{job}, .../job-done/{worker}/{job}     200, whatever the body

Polls are held until there is an answer. A key is valid for the calls of the process that it was created for.
Other callers receive 401 after a delay, because a stock program that is refused at once calls again thousands
of times a second. Only the body counts, not its content type.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from stoker.agent.host.own_network import BACKLOG, LOOPBACK, OwnNetwork
from stoker.agent.workers.sdk_programs.bodies import (
    Post,
    jobs_text,
    read_done,
    read_partial,
    stops_text,
    too_large,
)
from stoker.agent.workers.sdk_programs.worker import ProtocolProcess
from stoker.worker.frames import BODY_MAX

log = logging.getLogger(__name__)

REFUSE_S = 1.0
"""How long a caller without a valid key waits for its answer."""

ROOM_MAX = 1000
"""The most jobs of one batch, even if more are requested."""

ENVELOPE = 64 * 1024
"""How many bytes a post may have around its value."""

Answer: TypeAlias = Callable[[ProtocolProcess, Request], Awaitable[Response]]


class ProtocolServer:
    """The first call of `open` starts the server."""

    def __init__(self, refuse_s: float = REFUSE_S) -> None:
        self._refuse_s = refuse_s
        self._processes: dict[str, ProtocolProcess] = {}
        self._port = 0
        self._inside: dict[str, asyncio.Task[asyncio.Server]] = {}
        self._server: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def open(self) -> str:
        if self._task is None:
            listener = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
            self._port = listener.getsockname()[1]
            self._server = _Uvicorn(self._app())
            self._task = asyncio.create_task(self._server.serve([listener]), name="worker protocol")
        return f"http://{LOOPBACK}:{self._port}"

    def register(self, key: str, process: ProtocolProcess) -> None:
        self._processes[key] = process

    def unregister(self, key: str) -> None:
        self._processes.pop(key, None)
        if (listening := self._inside.pop(key, None)) is not None:
            listening.add_done_callback(lambda done: done.result().close())

    def listen_in(self, network: OwnNetwork, key: str) -> None:
        assert self._server is not None
        listening = self._server.listen(network.listener(self._port))
        self._inside[key] = asyncio.create_task(listening, name="worker protocol in a container")

    async def close(self) -> None:
        """Closes the server. To be called once every process has ended: no poll is held then."""
        self._closing.set()
        if self._server is not None and self._task is not None:
            self._server.stop()
            await self._task
            if last := list(self._server.server_state.tasks):
                await asyncio.wait(last)

    # -- routes

    def _app(self) -> Starlette:
        calls: dict[str, Answer] = {
            "job-take/{worker}": _take,
            "job-take-batch/{worker}": _take_batch,
            "job-stop/{worker}": _stops,
            "ping/{worker}": _ping,
        }
        posts: dict[str, Answer] = {
            "job-done/{worker}/{job}": _done,
            "job-stream/{worker}/{job}": _partial,
        }
        routes = [
            Route(f"/v2/{{endpoint}}/{path}", self._for(call), methods=["GET"])
            for path, call in calls.items()
        ]
        routes += [
            Route(f"/v2/{{endpoint}}/{path}", self._for(post), methods=["POST"])
            for path, post in posts.items()
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: self._no_such_call})

    def _for(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            process = self._processes.get(request.headers.get("authorization", "").removeprefix("Bearer "))
            if process is None or process.worker != request.path_params["worker"]:
                return await self._refuse(401, "this key is not the key of this worker")
            try:
                return await answer(process, request)
            except ClientDisconnect:
                return Response(status_code=204)

        return answered

    async def _no_such_call(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return await self._refuse(status, f"the worker protocol has no {request.method} {request.url.path}")

    async def _refuse(self, status: int, why: str) -> Response:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._refuse_s):
                await self._closing.wait()
        return Response(why, status, media_type="text/plain")


# -- calls


async def _take(process: ProtocolProcess, request: Request) -> Response:
    return await _taken(process, request, room=1, many=False)


async def _take_batch(process: ProtocolProcess, request: Request) -> Response:
    size = request.query_params.get("batch_size", "")
    room = int(size) if size.isascii() and size.isdecimal() and len(size) < 10 else 1
    return await _taken(process, request, room=max(1, min(room, ROOM_MAX)), many=True)


async def _taken(process: ProtocolProcess, request: Request, *, room: int, many: bool) -> Response:
    busy = {"0": False, "1": True}.get(request.query_params.get("job_in_progress", ""))
    async with _hang_up(request) as gone:
        jobs = await process.take(room, many, busy, gone)
    return _json(jobs_text(tuple(job.text for job in jobs), many=many)) if jobs else Response(status_code=204)


async def _stops(process: ProtocolProcess, request: Request) -> Response:
    async with _hang_up(request) as gone:
        jobs = await process.stops(gone)
    return _json(stops_text(tuple(jobs))) if jobs else Response(status_code=204)


async def _ping(process: ProtocolProcess, request: Request) -> Response:
    query = request.query_params
    if query.get("status") == "unhealthy":
        process.unfit(f"fitness check {query.get('check')} failed: {query.get('reason')}")
    else:
        process.pinged(frozenset(filter(None, query.get("job_id", "").split(","))))
    return Response(status_code=200)


async def _done(process: ProtocolProcess, request: Request) -> Response:
    await process.posted(request.path_params["job"], lambda: _read(request, read_done))
    return Response(status_code=200)


async def _partial(process: ProtocolProcess, request: Request) -> Response:
    await process.posted(request.path_params["job"], lambda: _read(request, read_partial))
    return Response(status_code=200)


async def _read(request: Request, read: Callable[[bytes], Post]) -> Post:
    """Reads the whole body, even one that is too large: a worker that is cut off would lose its result."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= BODY_MAX + ENVELOPE:
            parts.append(part)
        else:
            parts.clear()
    return read(b"".join(parts)) if size <= BODY_MAX + ENVELOPE else too_large(size)


@contextlib.asynccontextmanager
async def _hang_up(request: Request) -> AsyncIterator[asyncio.Task[None]]:
    """Yields a task that is done once the caller of a poll has hung up."""
    gone = asyncio.create_task(_disconnected(request), name="hang-up")
    try:
        yield gone
    finally:
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(text: bytes) -> Response:
    return Response(text, 200, media_type="application/json")


class _Uvicorn(uvicorn.Server):
    """A server in a running loop: it installs no signal handlers, and does not poll ten times a second
    whether to stop."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=75,
            )
        )
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        """Serves at a further socket, as `startup` does at the first."""
        loop = asyncio.get_running_loop()
        protocol = self.config.http_protocol_class

        def make() -> asyncio.Protocol:
            return protocol(config=self.config, server_state=self.server_state, app_state={})  # type: ignore[call-arg]

        return await loop.create_server(make, sock=listener)

    async def main_loop(self) -> None:
        await self._stopping.wait()

    def stop(self) -> None:
        self.force_exit = True  # open calls belong to programs that have ended
        self._stopping.set()
