"""Load-balancing endpoints behind a real control and a real agent: HTTP servers as people write them."""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from tests.conformance.stock_client import PEERS, installed
from tests.system.stack import SERVERS, Stack, queue_endpoint, running, until

pytestmark = pytest.mark.slow


OTHERS = ("aiohttp", "starlette")
"""Frameworks that are not ours, in an environment of their own."""


def server(
    name: str, file: str, env: dict[str, str] | None = None, python: str = sys.executable, **fields: Any
) -> str:
    """An endpoint whose workers are a server of tests/handlers_http."""
    values = {
        "imageName": f"local:{SERVERS}",
        "dockerStartCmd": [python, f"{file}.py"],
        "type": "LOAD_BALANCER",
        "computeType": "CPU",
        **fields,
    }
    variables = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (env or {}).items())
    return queue_endpoint(name, "", **values) + f"[endpoints.env]\n{variables}\n"


@pytest.fixture(scope="module", params=["local", "direct", "tunnel"])
def way(request: pytest.FixtureRequest) -> str:
    """How control reaches the workers. Both are on one host here, but control may use this way only."""
    return str(request.param)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory, way: str) -> Path:
    return tmp_path_factory.mktemp("state")


def folder(state: Path, endpoint: str) -> str:
    (state / endpoint).mkdir()
    return str(state / endpoint)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, state: Path, way: str) -> Iterator[Stack]:
    endpoints = (
        f'gateway_ways = ["{way}"]',
        server("app", "app", {"STATE": str(state)}, workersMin=2, workersMax=2),
        server("plain", "plain"),
        server("ws", "web_socket"),
        server(
            "scaled", "app", {"STATE": folder(state, "scaled")}, workersMax=3, scalerValue=1, idleTimeout=1
        ),
        *(
            server(name, f"{name}_server", {"STATE": folder(state, name)}, str(PEERS / "python/bin/python"))
            for name in OTHERS
            if (PEERS / "python/.installed").exists()
        ),
    )
    options = ["--gateway-listen", "127.0.0.1:0"] if way == "direct" else []
    with running(tmp_path_factory.mktemp("stack"), *endpoints, options=options) as stack:
        until(lambda: health(stack, "app")["ready"] == 2, 120, "two workers that are ready")
        yield stack


def health(stack: Stack, endpoint: str) -> dict[str, int]:
    return dict(stack.health(endpoint)["workers"])


def resident(process: Any) -> int:
    return int(psutil.Process(process.pid).memory_info().rss)


def test_a_fastapi_app_and_a_plain_server(stack: Stack) -> None:
    answer = stack.http.put("/app/echo/a%20b?x=1", content=b"hello", headers={"X-Own": "1", "Expect": "x"})
    told = answer.json()
    assert (answer.status_code, told["method"], told["body"]) == (200, "PUT", "hello")
    assert answer.headers["x-runpod-worker-id"] == told["worker"]
    headers = told["headers"]
    assert (headers["x-own"], headers["x-forwarded-for"]) == ("1", "127.0.0.1")
    assert headers["x-forwarded-prefix"] == "/v2/app"
    assert "authorization" not in headers
    assert headers["host"] == urlsplit(stack.facts["http"]).netloc
    answer = stack.http.get("/plain/some/path?a=b%20c")
    assert (answer.status_code, answer.text) == (200, "/some/path?a=b%20c")
    assert (stack.http.post("/plain/x", content=b"abc").status_code) == 201
    assert stack.http.head("/app/ping").status_code == 405  # the app's own
    assert httpx2.get(f"{stack.facts['http']}/v2/app/echo/x", trust_env=False).status_code == 401


def test_the_first_byte_of_events_comes_before_the_last_is_made(stack: Stack, state: Path) -> None:
    with stack.http.stream("GET", "/app/events") as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"data: first\n\n"
        (state / "go").touch()
        assert b"".join(pieces) == b"data: last\n\n"


def test_25_mb_up_and_down_in_flat_memory(stack: Stack) -> None:
    piece, count = bytes(65_536), 400
    stack.http.post("/app/upload", content=piece)
    control, agent = resident(stack.control), resident(stack.agent)
    answer = stack.http.post("/app/upload", content=(piece for _ in range(count))).json()
    assert answer["size"] == len(piece) * count
    with stack.http.stream("GET", f"/app/bytes/{len(piece) * count}") as down:
        assert sum(len(part) for part in down.iter_raw()) == len(piece) * count
    for name, process, before in (("control", stack.control, control), ("agent", stack.agent, agent)):
        assert resident(process) - before < 12 << 20, name
    large = HTTPConnection(urlsplit(stack.facts["http"]).netloc, timeout=60)
    large.putrequest("POST", "/v2/app/upload")
    large.putheader("Authorization", f"Bearer {stack.key}")
    large.putheader("Content-Length", str(31 << 20))
    large.endheaders()
    assert large.getresponse().status == 413
    large.close()


def leave_while_held(stack: Stack, endpoint: str, state: Path) -> None:
    """Sends a request and leaves; returns when its handler knows."""
    caller = HTTPConnection(urlsplit(stack.facts["http"]).netloc, timeout=60)
    caller.request("GET", f"/v2/{endpoint}/held", headers={"Authorization": f"Bearer {stack.key}"})
    until((state / "held").exists, 60, "a request that is held")
    caller.close()
    until((state / "told").exists, 60, "a handler that knows")


def test_a_handler_is_told_that_its_caller_left(stack: Stack, state: Path) -> None:
    leave_while_held(stack, "app", state)


@pytest.mark.parametrize("name", OTHERS)
def test_other_frameworks(stack: Stack, state: Path, name: str) -> None:
    installed("python")
    told = stack.http.put(f"/{name}/echo/a%20b?x=1", content=b"hello").json()
    assert (told["method"], told["body"]) == ("PUT", "hello")
    assert told["path"] in ("/echo/a%20b?x=1", "/echo/a b?x=1")
    assert stack.http.post(f"/{name}/upload", content=(bytes(65_536) for _ in range(160))).json() == {
        "size": 160 * 65_536
    }
    with stack.http.stream("GET", f"/{name}/events") as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"data: first\n\n"
        (state / name / "go").touch()
        assert b"".join(pieces) == b"data: last\n\n"
    leave_while_held(stack, name, state / name)


def test_a_killed_worker_fails_its_own_requests_alone(stack: Stack, state: Path) -> None:
    """The worker comes back, and meanwhile the other one serves."""
    until(lambda: health(stack, "app")["ready"] == 2, 120, "two workers that are ready")
    before = {stack.http.get("/app/echo/x").json()["pid"] for _ in range(20)}
    assert len(before) == 2
    (state / "go").unlink(missing_ok=True)
    first = {}
    with stack.http.stream("GET", "/app/events") as on_one:
        first["one"] = on_one.headers["x-runpod-worker-id"]
        workers = {stack.http.get("/app/echo/x").headers["x-runpod-worker-id"] for _ in range(20)}
        (other,) = workers - {first["one"]}
        died = stack.http.get("/app/die", headers={"X-Runpod-Worker-Id": f"strict {other}"})
        assert (died.status_code, died.headers["x-runpod-worker-id"]) == (502, other)
        answers = [stack.http.get("/app/echo/x") for _ in range(50)]
        failed = [one for one in answers if one.status_code != 200]
        words = [(one.headers["x-runpod-worker-id"], one.text) for one in failed]
        assert {worker for worker, _ in words} <= {other}, words
        assert len(failed) < 5, words  # until its agent has told control
        (state / "go").touch()
        assert b"".join(on_one.iter_raw()).endswith(b"data: last\n\n")
    until(lambda: health(stack, "app")["ready"] == 2, 120, "the worker's next process")


def test_a_worker_that_is_killed_fails_what_it_had_with_502_and_no_more(stack: Stack, state: Path) -> None:
    """Of two workers, each with requests that wait for a response and one that has begun."""
    until(lambda: health(stack, "app")["ready"] == 2, 120, "two workers that are ready")
    (state / "go").unlink(missing_ok=True)
    echoes = [stack.http.get("/app/echo/x").json() for _ in range(20)]
    pids = {one["worker"]: one["pid"] for one in echoes}
    killed, spared = pids

    def held(worker: str) -> httpx2.Response:
        return stack.http.get("/app/waits", headers={"X-Runpod-Worker-Id": f"strict {worker}"}, timeout=60)

    have_begun: set[str] = set()

    def begun(worker: str) -> bytes:
        headers = {"X-Runpod-Worker-Id": f"strict {worker}"}
        with stack.http.stream("GET", "/app/events", headers=headers, timeout=60) as answer:
            pieces = answer.iter_raw()
            first = next(pieces)
            have_begun.add(worker)
            return first + b"".join(pieces)

    def all_sent() -> bool:
        in_progress = stack.health("app")["jobs"]["inProgress"]
        return in_progress == 8 and have_begun == set(pids)

    with ThreadPoolExecutor(8) as pool:
        waiting = {worker: [pool.submit(held, worker) for _ in range(3)] for worker in pids}
        streams = {worker: pool.submit(begun, worker) for worker in pids}
        until(all_sent, 60, "eight requests")
        psutil.Process(pids[killed]).kill()
        lost = [one.result() for one in waiting[killed]]
        assert {(one.status_code, one.headers["x-runpod-worker-id"]) for one in lost} == {(502, killed)}
        with pytest.raises(httpx2.RemoteProtocolError):
            streams[killed].result()
        (state / "go").touch()
        answered = [one.result() for one in waiting[spared]]
        assert {(one.status_code, one.headers["x-runpod-worker-id"]) for one in answered} == {(200, spared)}
        assert streams[spared].result() == b"data: first\n\ndata: last\n\n"


def test_scaled_up_and_down_under_load_no_request_fails(stack: Stack, state: Path) -> None:
    """All workers get some of the requests until the end, and one of them could do it all."""
    until(lambda: health(stack, "scaled")["ready"] == 1, 120, "a worker that is ready")
    with ThreadPoolExecutor(4) as pool:
        held = [pool.submit(stack.http.get, "/scaled/waits", timeout=60) for _ in range(3)]
        until(lambda: health(stack, "scaled")["ready"] == 3, 120, "a worker for each of the requests")
        stop = threading.Event()

        def callers() -> set[int]:
            found = set()
            while not stop.is_set():
                found.add(stack.http.get("/scaled/echo/x").status_code)
            return found

        calling = pool.submit(callers)
        (state / "scaled" / "go").touch()
        try:
            assert {one.result().status_code for one in held} == {200}
            until(lambda: health(stack, "scaled")["ready"] == 1, 60, "a single worker")
        finally:
            stop.set()
        assert calling.result() == {200}


def test_a_worker_whose_ping_fails_is_out_of_rotation_until_it_is_well(stack: Stack, state: Path) -> None:
    until(lambda: health(stack, "app")["ready"] == 2, 120, "two workers that are ready")
    (state / "ill").touch()
    until(lambda: health(stack, "app")["unhealthy"] == 2, 60, "workers out of rotation")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stack.http.get, "/app/echo/x")
        (state / "ill").unlink()
        assert waiting.result().status_code == 200
    assert health(stack, "app")["unhealthy"] < 2


class WebSocket:
    """A caller's end, from the standard library."""

    def __init__(self, stack: Stack, endpoint: str) -> None:
        address = urlsplit(stack.facts["http"])
        self.socket = socket.create_connection((address.hostname, address.port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /v2/{endpoint}/chat HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Bearer {stack.key}\r\n"
            f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        self.reader = self.socket.makefile("rb")
        self.status = int(self.reader.readline().split()[1])
        self.headers = {}
        while line := self.reader.readline().strip():
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()

    def echoed(self, data: bytes) -> bytes:
        mask = b"\x01\x02\x03\x04"
        masked = bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))
        self.socket.sendall(bytes([0x82, 0x80 | len(data)]) + mask + masked)
        _, length = self.reader.read(2)
        return self.reader.read(length)

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@pytest.mark.parametrize("endpoint", ["ws", *OTHERS])
def test_a_hundred_web_sockets(stack: Stack, endpoint: str) -> None:
    if endpoint in OTHERS:
        installed("python")
    until(lambda: health(stack, endpoint)["ready"] == 1, 120, "a worker that is ready")
    sockets = [WebSocket(stack, endpoint) for _ in range(100)]
    try:
        assert {(one.status, bool(one.headers["x-runpod-worker-id"])) for one in sockets} == {(101, True)}
        assert stack.health(endpoint)["jobs"]["inProgress"] == 100
        for _ in range(3):
            for n, one in enumerate(sockets):
                assert one.echoed(b"message %d" % n) == b"message %d" % n
    finally:
        for one in sockets:
            one.close()
    until(lambda: stack.health(endpoint)["jobs"]["inProgress"] == 0, 60, "an end of all")
    refused = WebSocket(stack, "nothing")
    assert refused.status == 404
    refused.close()


def test_trailers_pass_both_ways(stack: Stack) -> None:
    until(lambda: health(stack, "ws")["ready"] == 1, 120, "a worker that is ready")
    address = urlsplit(stack.facts["http"])
    with socket.create_connection((address.hostname, address.port), timeout=60) as caller:
        caller.sendall(
            f"POST /v2/ws/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stack.key}\r\nConnection: close\r\n"
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1234\r\n\r\n".encode()
        )
        received = b"".join(iter(lambda: caller.recv(65_536), b""))
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.endswith(b"\r\n2\r\nhi\r\n0\r\nx-sum: 1234\r\n\r\n"), received


def test_after_a_restart_of_control_the_same_workers_serve(stack: Stack) -> None:
    until(lambda: health(stack, "app")["ready"] == 2, 120, "two workers that are ready")
    before = {stack.http.get("/app/echo/x").json()["pid"] for _ in range(20)}
    stack.kill("control")
    stack.start_control()
    after = {stack.http.get("/app/echo/x").json()["pid"] for _ in range(20)}
    assert after <= before
