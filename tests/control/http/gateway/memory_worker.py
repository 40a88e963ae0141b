"""A node's http worker in memory, and callers that speak ASGI: for a gateway on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import h11

from stoker.control.http.calls.answers import SEND_TRAILERS
from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.http.gateway.gateway import Gateway
from stoker.control.http.gateway.reaching import Reaching
from stoker.control.http.management.app import make_management_app
from stoker.control.rules.nodes.ways import NodeGateway
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.wire.messages import GatewayAddress, WorkerState
from tests.control.plane_world import NAMESPACE, World, endpoint, world
from tests.control.working_agent import WorkingAgent

TOKEN = "a-token-of-the-agent"
HERE = GatewayAddress(20_000, TOKEN, NAMESPACE)


def app_endpoint(name: str = "app", **fields: Any) -> Endpoint:
    run = EndpointVersion("/srv/app", kind="http", command=("app",))
    return endpoint(name, run=run, type="LOAD_BALANCER", **{"workers_max": 3, "workers_min": 1, **fields})


class Pipe:
    """One direction of a connection in memory, as a StreamWriter and a transport."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.closed = False
        self.back: Pipe
        self.transport = self

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.reader.feed_data(data)

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.7", 4711) if name == "peername" else None

    async def drain(self) -> None:
        await asyncio.sleep(0)
        if self.closed:
            raise ConnectionResetError("the other side closed")

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        for pipe in (self, self.back):
            if not pipe.closed:
                pipe.closed = True
                pipe.reader.feed_eof()

    abort = close


Serve = Callable[["Served"], Awaitable[None]]


class Served:
    """One connection at the worker. `request`, `body` and `trailers` are what came; the test's function
    responds."""

    def __init__(self, worker: str, reader: asyncio.StreamReader, pipe: Pipe) -> None:
        self.worker, self._reader, self.pipe = worker, reader, pipe
        self.http = h11.Connection(h11.SERVER)
        self.request: h11.Request
        self.headers: dict[str, str] = {}
        self.body = b""
        self.trailers: list[tuple[bytes, bytes]] = []

    async def event(self) -> Any:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self._reader.read(65_536))
        return event

    async def read(self) -> bool:
        """A whole request; False where the gateway closed the connection."""
        event = await self.event()
        if not isinstance(event, h11.Request):
            return False
        self.request = event
        self.headers = {name.decode(): value.decode() for name, value in event.headers}
        self.body = b""
        while isinstance(event := await self.event(), h11.Data):
            self.body += bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            return False
        self.trailers = list(event.headers)
        return True

    async def read_bytes(self) -> bytes:
        """What comes after a handshake."""
        return await self._reader.read(65_536)

    def send(self, *events: Any) -> None:
        for event in events:
            self.pipe.write(self.http.send(event) or b"")

    def head(self, status: int = 200, **headers: str) -> None:
        self.send(
            h11.Response(status_code=status, headers=[(k.replace("_", "-"), v) for k, v in headers.items()])
        )

    def respond(self, body: bytes, status: int = 200) -> None:
        self.head(status, content_length=str(len(body)))
        self.send(h11.Data(body), h11.EndOfMessage())


class Workers:
    """The node: accepts CONNECT with its token, and gives each connection to `serve`. `connects` are the
    workers that were asked for; `refuses` says how the node answers for a worker that it does not reach."""

    def __init__(self, tasks: asyncio.TaskGroup, serve: Serve) -> None:
        self.tasks, self.serve = tasks, serve
        self.connects: list[str] = []
        self.pipes: list[Pipe] = []
        self.refuses: dict[str, bytes] = {}

    async def dial(self, gateway: NodeGateway) -> tuple[asyncio.StreamReader, Any]:
        assert (gateway.host, gateway.port) == ("127.0.0.1", HERE.port)
        to_worker, to_control = Pipe(), Pipe()
        to_worker.back, to_control.back = to_control, to_worker
        self.pipes.append(to_control)
        self.tasks.create_task(self._accept(to_worker.reader, to_control))
        return to_control.reader, to_worker

    async def _accept(self, reader: asyncio.StreamReader, pipe: Pipe) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, authorization = head.split("\r\n")[:2]
        assert authorization == f"Authorization: Bearer {TOKEN}"
        worker = first.split(" ")[1]
        self.connects.append(worker)
        if worker in self.refuses:
            pipe.write(b"HTTP/1.1 " + self.refuses[worker] + b"\r\n\r\n")
            return pipe.close()
        pipe.write(b"HTTP/1.1 200 x\r\n\r\n")
        served = Served(worker, reader, pipe)
        try:
            while await served.read():
                await self.serve(served)
                served.http.start_next_cycle()
        except h11.ProtocolError:
            pipe.close()


class Caller:
    """One request. `start` sends it, `leave` closes its connection, `answer` is what was received."""

    def __init__(self, gateway: Any, key: str, path: str, method: str = "GET", **headers: str) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False
        self.moved = asyncio.Event()
        sent = {"host": "api.example.org", "authorization": f"Bearer {key}", **headers}
        raw, _, query = path.partition("?")
        self.scope = {
            "type": "http",
            "method": method,
            "path": raw,
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in sent.items() if v],
            "client": ("192.0.2.7", 4711),
            "scheme": "https",
        }
        self.trailers: list[tuple[bytes, bytes]] = []  # of the response
        self.scope["state"] = {SEND_TRAILERS: lambda _, trailers: self.trailers.extend(trailers)}
        self._gateway = gateway

    async def run(self, *pieces: bytes) -> Caller:
        for piece in pieces:
            self.put(piece)
        self.put(b"", more=False)
        await self._gateway(self.scope, self.messages.get, self._send)
        return self

    async def send_only(self) -> Caller:
        """The test puts the body."""
        await self._gateway(self.scope, self.messages.get, self._send)
        return self

    def put(self, piece: bytes, *, more: bool = True) -> None:
        self.messages.put_nowait({"type": "http.request", "body": piece, "more_body": more})

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self.complete = not message.get("more_body", False)
        self.moved.set()

    async def until(self, body: bytes) -> None:
        while body not in self.body:
            self.moved.clear()
            await self.moved.wait()


class Site:
    """A plane with an endpoint `app`, one agent, its workers in memory, and the gateway before them."""

    def __init__(self, w: World, tasks: asyncio.TaskGroup, agent: WorkingAgent, serve: Serve) -> None:
        self.w, self.tasks, self.agent = w, tasks, agent
        self.workers = Workers(tasks, serve)
        self.made: list[Gateway] = []
        settings = ApiSettings(gateway_domain="lb.example.org")
        self.app = make_app(w.plane, settings, make_management_app(w.plane), self._gateway)

    def _gateway(self, otherwise: Any) -> Gateway:
        made = Gateway(
            self.w.plane,
            Reaching(self.w.plane.cluster, self.w.plane.tunnels, self.w.now, self.workers.dial),
            Random(1),
            otherwise,
            "lb.example.org",
        )
        self.made.append(made)
        return made

    async def ready(self, count: int = 1) -> list[str]:
        """Waits until so many workers are ready; returns their names."""
        for _ in range(1000):
            if self.w.plane.cluster.ready_workers("app") >= count:
                break
            await asyncio.sleep(0.05)
        return list(self.agent.ready)

    async def tell(self, worker: str, state: str, reason: str = "") -> None:
        spec = self.agent.specs[worker]
        await self.agent.report(WorkerState(worker, spec.endpoint, spec.version, state, reason))
        await asyncio.sleep(0.1)

    def caller(self, path: str = "/v2/app/hello", method: str = "GET", **headers: str) -> Caller:
        return Caller(self.app, self.w.key, path, method, **headers)

    async def get(self, path: str = "/v2/app/hello", **headers: str) -> Caller:
        return await self.caller(path, **headers).run()


async def hello(served: Served) -> None:
    served.respond(f"{served.worker} {served.request.target.decode()}".encode())


@asynccontextmanager
async def site(serve: Serve = hello, *endpoints: Endpoint, **kw: Any) -> AsyncIterator[Site]:
    async with world(*(endpoints or (app_endpoint(**kw),))) as (w, tasks):
        agent = WorkingAgent(w.plane, w.token, cold_s=1.0, job_s=0.0)
        agent.peer, agent.gateway = "ipv4:127.0.0.1:4711", HERE
        await agent.works(tasks)
        made = Site(w, tasks, agent, serve)
        yield made
        for pipe in made.workers.pipes:
            pipe.close()
        made.made[0].connections.close()
