"""The server of load-balanced routes, with real requests and real interpreters."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection as PlainConnection
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from stoker.client.apps.bundle import Bundle
from stoker.client.apps.definition import Definition
from stoker.client.apps.requests import route_request, route_response
from stoker.client.apps.resources import version_env
from stoker.worker import connection_proof as proof
from stoker.worker.connection_proof import line_of
from stoker.worker.functions import interpreter
from stoker.worker.functions.code import version_content
from stoker.worker.functions.environments import VARIABLE
from stoker.worker.functions.printed import CHARACTERS_MAX
from stoker.worker.functions.server import Server
from tests.worker.functions.function_apps import App, joined_watchers

SOURCE = """
import asyncio
import os
import sys
import threading
from stoker.client import endpoint
from stoker.worker.functions.printed import printed

api = endpoint(name="shop")
met = threading.Barrier(2)

@api.get("/items/{id}")
def item(id: int, q: str = ""):
    return {"id": id, "q": q}

@api.post("/items")
async def add(item: dict):
    return item

@api.put("/image")
def image(image: bytes):
    return image[::-1]

@api.get("/fails")
def fails():
    print("before it fails")
    raise ValueError("no")

@api.get("/prints")
async def prints():
    print("a", "line")
    print("10 %\\r20 %\\r", end="", file=sys.stderr)
    await asyncio.to_thread(print, "of a thread")
    print("without an end", end="")

@api.get("/forks")
def forks():
    print("before")
    child = os.fork()
    if not child:
        print("of the fork", flush=True)
        os._exit(printed.get() is not None)
    print("it ended with", os.waitpid(child, 0)[1])

@api.get("/floods")
def floods():
    print("x" * 5000)
    for n in range(20_000):
        print(n)

@api.get("/meets")
def meets():
    met.wait(60)

@api.get("/pid")
def pid():
    return os.getpid()

@api.get("/sleeps")
async def sleeps(file: str):
    try:
        open(file, "w").close()
        await asyncio.sleep(1000)
    finally:
        os.unlink(file)

@api.get("/stuck")
async def stuck(file: str):
    with open(file, "w") as began:
        began.write(str(os.getpid()))
    while True:
        try:
            await asyncio.sleep(1000)
        except BaseException:
            pass

@api.get("/words")
def words(until: str = ""):
    print("before")
    yield "one "
    while until and not os.path.exists(until):
        met.wait  # a thread of the pool
    print("between")
    yield "two"

@api.get("/blocks")
async def blocks():
    for block in (bytes([0, 255]), b"", b"b"):
        yield block

@api.get("/values")
async def values():
    yield {"n": 1}
    yield None

@api.get("/no-values")
def no_values():
    yield from ()

@api.get("/breaks/{after}")
def breaks(after: int):
    for n in range(after):
        yield n
    raise ValueError("it broke")

@api.get("/yields-on")
async def yields_on(file: str):
    try:
        while True:
            yield "more"
            open(file, "w").close()
    finally:
        os.unlink(file)

@api.get("/reads")
async def reads(pipe: str):
    return await asyncio.to_thread(lambda: open(pipe).read())
"""


TOKEN = "the agent's own"


class HTTPConnection(PlainConnection):
    """One as the agent's gateway makes it."""

    def connect(self) -> None:
        super().connect()
        self.sock.sendall(line_of(TOKEN))


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    return App.write(tmp_path_factory.mktemp("app"), {"shop.py": SOURCE})


def serving(content: dict[str, Any] | None) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), content, TOKEN)
    server.daemon_threads = False  # its close waits for them
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    with joined_watchers():
        try:
            yield server
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@pytest.fixture
def deployed(app: App) -> Iterator[Server]:
    variables = version_env(app.endpoint("api"), Definition(), app.bundle("api"))
    yield from serving(version_content(variables))


@pytest.fixture
def no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip finds nothing, and what it makes goes with the test."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "environments"))


@pytest.fixture
def live() -> Iterator[Server]:
    yield from serving(None)


def ask(
    server: Server, method: str, path: str, body: Any = None, kind: str = "application/json", **headers: str
) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        data = json.dumps(body).encode() if kind == "application/json" and body is not None else body
        connection.request(method, path, data, {"Content-Type": kind, **headers} if data else headers)
        answer = connection.getresponse()
        read = answer.read()
        is_json = answer.headers["Content-Type"] == "application/json"
        return answer.status, json.loads(read) if is_json else read
    finally:
        connection.close()


@contextlib.contextmanager
def connected(server: Server) -> Iterator[HTTPConnection]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        yield connection
    finally:
        connection.close()


def leaves(server: Server, path: str, file: Path) -> None:
    """Asks for this, and closes the connection once the function has made the file."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", f"{path}?file={file}")
    until(file.exists)
    connection.close()


def until(true: Callable[[], bool]) -> None:
    """Another process makes it true."""
    end = time.monotonic() + 30.0
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_request_whose_connection_is_closed_is_cancelled(deployed: Server, tmp_path: Path) -> None:
    """Its caller left, or the gateway gave it up: the function does not run on."""
    file = tmp_path / "began"
    leaves(deployed, "/sleeps", file)
    until(lambda: not file.exists())
    assert ask(deployed, "GET", "/items/7")[0] == 200


def test_one_that_does_not_stop_loses_its_process(
    deployed: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "CANCEL_S", 0.05)
    file = tmp_path / "began"
    leaves(deployed, "/stuck", file)
    pid = int(file.read_text())
    until(lambda: not alive(pid))
    status, other = ask(deployed, "GET", "/pid")
    assert (status, other == pid) == (200, False)


def test_its_process_waits_for_those_beside_it(
    deployed: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "CANCEL_S", 0.05)
    pipe, file, answers = tmp_path / "pipe", tmp_path / "began", []
    os.mkfifo(pipe)
    beside = threading.Thread(target=lambda: answers.append(ask(deployed, "GET", f"/reads?pipe={pipe}")))
    beside.start()
    writer = os.open(pipe, os.O_WRONLY)  # it is being read
    leaves(deployed, "/stuck", file)
    pid = int(file.read_text())
    until(lambda: ask(deployed, "GET", "/pid")[1] != pid)  # it takes no new ones
    assert alive(pid)
    os.write(writer, b"whole")
    os.close(writer)
    beside.join()
    assert answers == [(200, "whole")]
    until(lambda: not alive(pid))


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_deployed_app_is_ready_when_its_code_is(deployed: Server) -> None:
    assert ask(deployed, "GET", "/ping")[0] == 204
    deployed.on_loop(deployed.app.prepare())
    assert ask(deployed, "GET", "/ping")[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "expected"),
    [
        ("GET", "/items/3?q=a%20b", None, "", (200, {"id": 3, "q": "a b"})),
        ("POST", "/items", {"name": "x"}, "application/json", (200, {"name": "x"})),
        ("PUT", "/image", b"\x00\x01", "image/png", (200, b"\x01\x00")),
        ("HEAD", "/items/3", None, "", (200, b"")),
    ],
)
def test_routes_answer(deployed: Server, method: str, path: str, body: Any, kind: str, expected: Any) -> None:
    if method == "HEAD":
        connection = HTTPConnection("127.0.0.1", deployed.server_port, timeout=60)
        connection.request(method, path)
        assert (connection.getresponse().status, b"") == expected
        connection.close()
        return
    assert ask(deployed, method, path, body, kind) == expected


def test_what_is_wrong_is_a_sentence(deployed: Server) -> None:
    assert ask(deployed, "GET", "/nothing")[0] == 404
    assert ask(deployed, "DELETE", "/items")[0] == 405
    status, told = ask(deployed, "GET", "/items/x")
    assert (status, told) == (422, {"error": "id must be int; got 'x'"})
    status, told = ask(deployed, "GET", "/fails")
    assert status == 500
    assert 'File "shop.py", line 27, in fails' in told["error"]
    assert ask(deployed, "POST", "/execute", {})[0] == 404


def test_several_requests_run_at_once(deployed: Server) -> None:
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(deployed, "GET", "/meets"))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [(200, None)] * 2


YIELDED = pytest.mark.parametrize(
    ("path", "accept", "kind", "body"),
    [
        ("/words", "*/*", "text/plain; charset=utf-8", b"one two"),
        ("/words", "text/event-stream", "text/event-stream", b"one two"),
        ("/blocks", "text/event-stream", "application/octet-stream", b"\0\xffb"),
        ("/values", "*/*", "application/x-ndjson", b'{"n": 1}\nnull\n'),
        ("/values", "text/event-stream", "text/event-stream", b'data: {"n": 1}\n\ndata: null\n\n'),
        ("/no-values", "*/*", "application/octet-stream", b""),
    ],
)


@YIELDED
def test_what_a_route_yields_is_its_response(
    deployed: Server, path: str, accept: str, kind: str, body: bytes
) -> None:
    with connected(deployed) as connection:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"], answer.read()) == (200, kind, body)
        connection.request("HEAD", path)
        assert connection.getresponse().read() == b""
        connection.request("GET", "/items/3")
        assert connection.getresponse().read() == b'{"id": 3, "q": ""}', "the connection is kept"


@YIELDED
def test_what_a_live_route_yields_is_told(
    live: Server, app: App, path: str, accept: str, kind: str, body: bytes
) -> None:
    head, *rest = told(live, app, path, Accept=accept)
    assert (head["status"], head["headers"]) == (200, {"content-type": kind})
    assert b"".join(base64.b64decode(one.get("body", "")) for one in rest) == body
    assert rest[-1]["end"] is True


def test_a_part_comes_when_it_is_yielded(deployed: Server, tmp_path: Path) -> None:
    with connected(deployed) as connection:
        connection.request("GET", f"/words?until={tmp_path / 'seen'}")
        answer = connection.getresponse()
        assert answer.read1() == b"one "
        (tmp_path / "seen").touch()
        assert answer.read() == b"two"


def test_what_fails_before_a_part_is_a_500_and_after_one_has_no_end(deployed: Server) -> None:
    status, answer = ask(deployed, "GET", "/breaks/0")
    assert (status, "ValueError: it broke" in answer["error"]) == (500, True)
    with connected(deployed) as connection:
        connection.request("GET", "/breaks/2")
        answer = connection.getresponse()
        with pytest.raises(IncompleteRead) as broken:
            answer.read()
    assert broken.value.partial == b"0\n1\n"


def test_lines_and_errors_come_with_the_parts(live: Server, app: App) -> None:
    lines = [line for one in told(live, app, "/words") for line in one.get("lines", ())]
    assert lines == ["before", "between"]
    *_, last = told(live, app, "/breaks/1")
    assert "ValueError: it broke" in last["error"]


def test_what_yields_ends_when_its_reader_leaves(deployed: Server, tmp_path: Path) -> None:
    leaves(deployed, "/yields-on", tmp_path / "began")
    until(lambda: not (tmp_path / "began").exists())
    assert ask(deployed, "GET", "/items/7")[0] == 200


def told(live: Server, app: App, path: str, **headers: str) -> list[dict[str, Any]]:
    """The lines of `/execute` for a route that yields."""
    body = route_request(
        app.endpoint("api"), app.bundle("api"), Definition(), method="GET", path=path, headers=headers
    )
    status, lines = ask(live, "POST", "/execute", body)
    assert status == 200
    return [json.loads(line) for line in lines.splitlines()]


def test_a_chunked_body_is_read(deployed: Server) -> None:
    connection = HTTPConnection("127.0.0.1", deployed.server_port, timeout=60)
    connection.request("PUT", "/image", iter([b"ab", b"cd"]), {"Content-Type": "a/b"}, encode_chunked=True)
    assert connection.getresponse().read() == b"dcba"
    connection.close()


def test_a_live_app_gets_its_code_with_each_request(live: Server, app: App, tmp_path: Path) -> None:
    def execute(app: App, method: str, path: str, **more: Any) -> tuple[int, Any]:
        endpoint = app.endpoint("api")
        body = route_request(endpoint, app.bundle("api"), Definition(), method=method, path=path, **more)
        status, told = ask(live, "POST", "/execute", body)
        assert status == 200, told
        answer = route_response(told)
        return answer.status, answer.body

    assert ask(live, "GET", "/ping")[0] == 200
    assert execute(app, "GET", "/items/3", query="q=x") == (200, b'{"id": 3, "q": "x"}')
    assert execute(app, "PUT", "/image", body=b"ab", headers={"Content-Type": "a/b"}) == (200, b"ba")
    assert execute(app, "GET", "/nothing")[0] == 404
    status, body = execute(app, "GET", "/fails")
    assert (status, b"ValueError: no" in body) == (500, True)
    other = App.write(tmp_path, {"shop.py": SOURCE.replace('"id": id', '"number": id')})
    assert execute(other, "GET", "/items/3") == (200, b'{"number": 3, "q": ""}')


def test_a_bundle_that_cannot_be_written_is_answered(live: Server, app: App) -> None:
    wrong = Bundle({"a.py": "", "a.py/b.py": ""})
    body = route_request(app.endpoint("api"), wrong, Definition(), method="GET", path="/items/3")
    status, told = ask(live, "POST", "/execute", body)
    assert status == 500
    assert "a.py" in told["error"]


def lines_of(live: Server, app: App, path: str) -> tuple[str, ...]:
    """What `/execute` says that the route has printed."""
    body = route_request(app.endpoint("api"), app.bundle("api"), Definition(), method="GET", path=path)
    return route_response(ask(live, "POST", "/execute", body)[1]).lines


def test_a_live_app_answers_with_the_lines_of_its_route(
    live: Server, app: App, capfd: pytest.CaptureFixture[str]
) -> None:
    assert lines_of(live, app, "/prints") == ("a line", "of a thread", "20 %", "without an end")
    assert lines_of(live, app, "/forks") == ("before", "it ended with 0")
    assert lines_of(live, app, "/fails") == ("before it fails",)
    assert lines_of(live, app, "/items/3") == (), "lines of other calls"
    printed = capfd.readouterr()
    assert "a line\nof a thread\nwithout an end" in printed.out, "the worker's log has them, too"
    assert "20 %" in printed.err


def test_lines_are_bounded(live: Server, app: App) -> None:
    first, *_, last = lines = lines_of(live, app, "/floods")
    assert first == "x" * 2000
    assert sum(len(line) + 1 for line in lines[:-1]) <= CHARACTERS_MAX
    assert last == f"… {20_001 - len(lines[:-1])} lines left out"


def test_a_live_app_answers_with_the_lines_of_an_installation(no_index: None, live: Server, app: App) -> None:
    endpoint, definition = app.endpoint("api"), Definition(dependencies=("no-such-package",))
    body = route_request(endpoint, app.bundle("api"), definition, method="GET", path="/items/3")
    answer = route_response(ask(live, "POST", "/execute", body)[1])
    assert answer.status == 500
    assert b"could not be installed" in answer.body
    assert any("No matching distribution found for no-such-package" in line for line in answer.lines)


def test_a_live_app_takes_nothing_else(live: Server) -> None:
    assert ask(live, "GET", "/items/3")[0] == 404
    assert ask(live, "POST", "/execute", [])[0] == 422
    for header in ({"Origin": "http://page.example"}, {"Sec-Fetch-Site": "same-origin"}):
        assert ask(live, "POST", "/execute", {}, **header)[0] == 403
    assert ask(live, "POST", "/execute", {})[1] == {
        "error": "bundle must be an object with a hash, and with packed or url"
    }


FIRST_LINES = (
    b"",
    b"POST /execute HTTP/1.1\r\n",
    b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PROOF \r\n",
    b"PROOF another's\r\nGET /ping HTTP/1.1\r\n\r\n",
    line_of(TOKEN).rstrip() + b"\n",
    b"x" * 100_000,
    b"\xff\r\n",
)


@pytest.mark.parametrize("first", FIRST_LINES)
def test_a_connection_without_the_proof_gets_nothing_run(live: Server, first: bytes) -> None:
    with (
        socket.create_connection(("127.0.0.1", live.server_port), 60) as neighbour,
        contextlib.suppress(OSError),  # the server resets a connection whose first line is too long
    ):
        neighbour.sendall(first)
        neighbour.shutdown(socket.SHUT_WR)
        with neighbour.makefile("rb") as answered:
            assert answered.readline() == b"HTTP/1.1 401 Unauthorized\r\n"
            assert answered.read().endswith(
                b'{"error": "this server takes connections from its agent alone"}'
            )
    assert ask(live, "GET", "/ping")[0] == 200


def test_a_silent_connection_is_closed(live: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "READ_S", 0.05)
    with socket.create_connection(("127.0.0.1", live.server_port), 60) as neighbour:
        assert neighbour.recv(10) == b""


def test_without_a_proof_in_its_environment_it_does_not_start() -> None:
    command = [sys.executable, "-P", "-m", "stoker.worker.functions.server"]
    environment = {**os.environ, "PORT": "1", "STOKER_FUNCTIONS_LIVE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "STOKER_FUNCTIONS_PROOF is not set; the agent" in done.stderr
