"""WebSockets through the gateway, on virtual time: the handshake is passed on, and what follows as it is."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import h11

from stoker.control.http.gateway.upgrades import Upgrades
from stoker.control.http.server.forwarded import Proxies
from tests.control.http.gateway.memory_worker import Pipe, Served, Site, site
from tests.control.plane_world import story

ACCEPTED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


async def echo(served: Served) -> None:
    """Accepts, names what it got, and sends every byte back."""
    names = " ".join(sorted(served.headers))
    served.pipe.write(ACCEPTED + f"{served.request.target.decode()} {names}\n".encode())
    while data := await served.read_bytes():
        served.pipe.write(data)
    served.pipe.close()


class Handshake:
    """A caller's connection, as the server hands it on. `tasks` are the server's."""

    def __init__(self, s: Site, path: str, *, proxies: Proxies | None = None, **headers: str) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.to_server, self.to_caller = Pipe(), Pipe()
        self.to_server.back, self.to_caller.back = self.to_caller, self.to_server
        upgrades = Upgrades(s.made[0], proxies)
        state = SimpleNamespace(tasks=self.tasks)
        upgrades.serve(state, self.to_server.reader, self.to_caller)  # type: ignore[arg-type]
        sent = {
            "Host": "api.example.org",
            "Authorization": f"Bearer {s.w.key}",
            "Upgrade": "websocket",
            **headers,
        }
        lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in sent.items() if value]
        self.write(f"GET {path} HTTP/1.1\r\n{''.join(lines)}Connection: Upgrade\r\n\r\n".encode())

    def write(self, data: bytes) -> None:
        self.to_server.write(data)

    async def head(self) -> tuple[int, dict[str, str]]:
        head = (await self.to_caller.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return int(head[0].split()[1]), fields

    async def ended(self) -> None:
        if self.tasks:  # those that have ended have left the set
            await asyncio.wait(self.tasks)


async def refused(handshake: Handshake) -> tuple[int, str]:
    status, _ = await handshake.head()
    body = json.loads(await handshake.to_caller.reader.read())
    return status, body["error"]


@story
async def test_bytes_pass_as_they_are_and_an_open_one_is_a_request() -> None:
    async with site(echo) as s:
        [worker] = await s.ready()
        one = Handshake(s, "/v2/app/chat?room=1", Sec_WebSocket_Key="k")
        status, headers = await one.head()
        assert (status, headers["x-runpod-worker-id"], headers["upgrade"]) == (101, worker, "websocket")
        got = (await one.to_caller.reader.readline()).decode().split()
        assert got[0] == "/chat?room=1"
        assert {"sec-websocket-key", "upgrade", "connection", "x-forwarded-for"} <= set(got)
        assert "authorization" not in got
        one.write(bytes(range(256)))
        assert await one.to_caller.reader.readexactly(256) == bytes(range(256))
        assert s.w.plane.requests.in_progress("app") == 1
        await asyncio.sleep(400.0)  # it has no limit of time
        one.to_server.close()
        await one.ended()
        assert s.w.plane.requests.in_progress("app") == 0
        assert all(pipe.closed for pipe in s.workers.pipes)


async def rules_the_origin(served: Served) -> None:
    lines = (
        b"Set-Cookie: a=1; Path=/\r\nStrict-Transport-Security: max-age=9\r\nX-Runpod-Worker-Id: w9\r\n\r\n"
    )
    served.pipe.write(ACCEPTED.removesuffix(b"\r\n") + lines)
    await served.read_bytes()


@story
async def test_a_handshake_s_answer_rules_nothing_beyond_its_endpoint() -> None:
    async with site(rules_the_origin) as s:
        [worker] = await s.ready()
        one = Handshake(s, "/v2/app/x")
        status, headers = await one.head()
        assert (status, headers["set-cookie"], headers["upgrade"]) == (101, "a=1; path=/v2/app", "websocket")
        assert "strict-transport-security" not in headers
        assert headers["x-runpod-worker-id"] == worker
        one.to_server.close()
        await one.ended()


@story
async def test_what_is_no_web_socket_of_a_worker_is_refused_in_words() -> None:
    async with site(echo) as s:
        await s.ready()
        assert (await refused(Handshake(s, "/v2/nothing/x")))[0] == 404
        assert await refused(Handshake(s, "/v2/app/x", Authorization="")) == (401, "no token provided")
        s.workers.refuses = dict.fromkeys(s.agent.specs, b"502 x")
        assert (await refused(Handshake(s, "/v2/app/x")))[0] == 502


@story
async def test_a_handshake_that_cannot_be_read_is_a_400() -> None:
    async with site(echo) as s:
        await s.ready()
        for wrong in ({"Host": ""}, {"HOST": "another.example.org"}, {"X A": "b"}):
            status, error = await refused(Handshake(s, "/v2/app/x", **wrong))
            assert (status, "not a valid HTTP/1.1" in error) == (400, True)


@story
async def test_a_caller_that_leaves_while_it_waits_for_a_worker() -> None:
    async with site(echo, workers_min=0) as s:
        one = Handshake(s, "/v2/app/x")
        await asyncio.sleep(0.5)
        assert s.w.plane.requests.samples()["app"].queued == 1
        one.to_server.close()
        await one.ended()
        assert s.w.plane.requests.samples() == {}


@story
async def test_the_end_of_the_server_ends_those_that_wait_and_those_that_are_open() -> None:
    async with site(echo) as s:
        await s.ready()
        one = Handshake(s, "/v2/app/x")
        assert (await one.head())[0] == 101
        [task] = one.tasks
        task.cancel()
        await one.ended()
        assert b"HTTP/1.1" not in await one.to_caller.reader.read()
        assert s.w.plane.requests.in_progress("app") == 0


async def declines(served: Served) -> None:
    """Keeps the connection, as servers do."""
    served.respond(b'{"detail":"no room"}', 403)


@story
async def test_behind_a_declined_handshake_there_is_no_tunnel() -> None:
    """A proxy keeps the connection for the next request, of whomever."""
    async with site(declines) as s:
        [worker] = await s.ready()
        one = Handshake(s, "/v2/app/room")
        one.write(b"GET /v2/app/another HTTP/1.1\r\nAuthorization: Bearer of-another\r\n\r\n")
        status, headers = await one.head()
        assert (status, headers["connection"], headers["x-runpod-worker-id"]) == (403, "close", worker)
        assert headers["content-length"] == "20"
        assert await one.to_caller.reader.read() == b'{"detail":"no room"}'
        await one.ended()
        assert len(s.workers.connects) == 1
        assert s.w.plane.requests.in_progress("app") == 0


async def answers_too_much(served: Served) -> None:
    served.head(404, content_length="3000000")
    for _ in range(3):
        served.send(h11.Data(b"x" * 1_000_000))


@story
async def test_an_answer_that_is_no_handshake_is_bounded() -> None:
    async with site(answers_too_much) as s:
        await s.ready()
        status, error = await refused(Handshake(s, "/v2/app/room"))
        assert (status, "with over 1048576 bytes" in error) == (502, True)


@story
async def test_a_side_that_takes_nothing_is_given_up() -> None:
    async with site(echo) as s:
        await s.ready()
        one = Handshake(s, "/v2/app/x")
        assert (await one.head())[0] == 101
        stuck = asyncio.Event()
        one.to_caller.drain = stuck.wait  # type: ignore[method-assign,assignment]
        one.write(b"echo this")
        await asyncio.sleep(59.0)
        assert s.w.plane.requests.in_progress("app") == 1
        await asyncio.sleep(2.0)
        assert (one.tasks, s.w.plane.requests.in_progress("app")) == (set(), 0)


async def tells_its_caller(served: Served) -> None:
    names = ("x-forwarded-for", "x-forwarded-proto")
    served.pipe.write(ACCEPTED + " ".join(served.headers[name] for name in names).encode() + b"\n")


@story
async def test_behind_proxies_the_caller_is_who_they_say() -> None:
    told = {"X_Forwarded_For": "203.0.113.9, 198.51.100.7, 10.0.0.5", "X_Forwarded_Proto": "https"}
    async with site(tells_its_caller) as s:
        await s.ready()
        for proxies, expected in (
            (None, b"192.0.2.7 http\n"),
            (Proxies(), b"10.0.0.5 https\n"),
            (Proxies.parse(["10.0.0.0/8"]), b"198.51.100.7 https\n"),
        ):
            one = Handshake(s, "/v2/app/x", proxies=proxies, **told)
            assert (await one.head())[0] == 101
            assert await one.to_caller.reader.readline() == expected
            one.to_server.close()
            await one.ended()
