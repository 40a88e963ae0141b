"""The server of a load-balanced endpoint of an app: `python -P -m stoker.worker.functions.server`.

    GET /ping        200 when its code is ready, 204 while it is being prepared
    POST /execute    live: the code, the routes and the caller's request -> the route's response and the lines
                     that it printed, as JSON, or as a line of JSON for each part of one that yields; not
                     from a browser: a page there reaches this machine's ports, too
    anything else    deployed: the routes themselves

Each connection begins with a proof that it is the agent's (`connection_proof`), since any process of the host
can connect. Each request has a thread of the standard library's server; functions run in the interpreter of
`runner`, whose loop has a thread of its own. The response of a route is JSON, or the bytes that it returned,
or what it yields (`streams`).
A request whose connection is closed is cancelled: its caller has left, or it took longer than it may, which
control decides.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import urllib.request
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import urlsplit

from stoker.app_values import TAG
from stoker.worker import connection_proof as proof
from stoker.worker.errors import HandlerError, describe
from stoker.worker.functions import routing
from stoker.worker.functions.code import PACKED_MAX, Code, CodeRefused, read_code, version_content
from stoker.worker.functions.install import Log
from stoker.worker.functions.interpreter import CallFailed
from stoker.worker.functions.routing import BadCall, Request, Route
from stoker.worker.functions.runner import Runner
from stoker.worker.functions.streams import TOLD, Ended, Response, Told, Yielded

T = TypeVar("T")

BODY_MAX = 64 << 20
"""Of a request. The gateway lets 30 MiB through, which are a third longer in a live one."""

CONCURRENT = 64
INSTALLING_MAX = 200
"""Of the lines of an installation, the last that a response carries."""

FETCH_S = 60.0

_UNPROVEN = (
    b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b'Content-Length: 63\r\n\r\n{"error": "this server takes connections from its agent alone"}'
)


class App:
    """The code and its runner. `respond` is called on the loop's thread."""

    def __init__(self, content: Mapping[str, Any] | None, runner: Runner) -> None:
        """Stores the content of a deployed endpoint, which is None at a live endpoint."""
        self.live = content is None
        self.ready = content is None
        self._runner = runner
        self._code = None if content is None else read_code(content)
        self._routes = () if content is None else routing.read_routes(content["routes"])

    async def prepare(self) -> None:
        """Makes a deployed endpoint's code ready. Raises HandlerError."""
        if self._code is not None:
            await self._runner.prepare(self._code, _print)
        self.ready = True

    async def respond(self, request: Request, opened: AsyncExitStack) -> Response:
        """Returns the response. Its parts, or the call if it is cancelled, end with `opened`."""
        try:
            if self._code is not None:
                return await self._route(self._code, self._routes, request, opened, _print)
            if request.path == "/execute" and request.method == "POST":
                if {"origin", "sec-fetch-site"} & request.headers.keys():
                    raise BadCall(403, "a page in a browser may not send code to this worker")
                return await self._execute(request, opened)
            raise BadCall(404, "a live endpoint takes POST /execute alone")
        except (BadCall, CallFailed) as error:
            return _error(error.status, str(error))
        except CodeRefused as error:
            return _error(422, str(error))
        except HandlerError as error:
            return _error(500, str(error))
        except Exception as error:  # a full disk, or a bundle that no client makes
            return _error(500, describe(error))

    async def _execute(self, outer: Request, opened: AsyncExitStack) -> Response:
        values = _object(outer.body)
        code = read_code(values)
        if code.url:
            packed = await asyncio.to_thread(_downloaded, code.url)
            code = replace(code, url="", packed=packed)
        request = values.get("request")
        try:
            assert isinstance(request, dict)
            inner = Request(
                str(request["method"]),
                str(request["path"]),
                str(request["query"]),
                {str(name): str(value) for name, value in request["headers"].items()},
                base64.b64decode(request["body"], validate=True),
            )
        except (AssertionError, KeyError, TypeError, AttributeError, binascii.Error, ValueError):
            raise BadCall(422, "request must have method, path, query, headers and body (base64)") from None
        installing: deque[str] = deque(maxlen=INSTALLING_MAX)
        printed: list[str] = []

        def log(line: str) -> None:
            _print(line)
            installing.append(line)

        try:
            routes = routing.read_routes(values.get("routes"))
            answer = await self._route(code, routes, inner, opened, log, printed.append)
        except (BadCall, CallFailed) as error:
            answer = _error(error.status, str(error))
        except CodeRefused:
            raise
        except HandlerError as error:
            answer = _error(500, str(error))
        head = {"status": answer.status, "headers": {"content-type": answer.media_type}}
        if answer.parts is not None:
            printed[:0] = installing
            return Response(200, b"", TOLD, Told(answer.parts, head, printed))
        body = base64.b64encode(answer.body).decode()
        return Response(200, json.dumps({**head, "body": body, "lines": [*installing, *printed]}).encode())

    async def _route(
        self,
        code: Code,
        routes: tuple[Route, ...],
        request: Request,
        opened: AsyncExitStack,
        log: Log,
        on_line: Callable[[str], None] | None = None,
    ) -> Response:
        route, names = routing.find(routes, request.method, request.path)
        message = {
            "module": route.module,
            "callable": route.callable,
            "names": names,
            "request": {
                "method": request.method,
                "path": request.path,
                "query": request.query,
                "headers": dict(request.headers),
                "body": base64.b64encode(request.body).decode(),
            },
        }
        yielded = Yielded(
            lambda on_chunk: self._runner.call(code, message, log, _ignore, on_chunk, on_line),
            request.headers,
        )
        opened.push_async_callback(yielded.close)
        first = await yielded.begin()
        if not isinstance(first, Ended):
            return Response(200, b"", yielded.media_type(first), yielded)
        result = first.value
        if isinstance(result, dict) and result.get(TAG) == "bytes":
            return Response(200, base64.b64decode(result["data"]), "application/octet-stream")
        return Response(200, json.dumps(result, ensure_ascii=False).encode("utf-8", "replace"))


class Handler(BaseHTTPRequestHandler):
    """A connection to the server. `server` is a `Server`."""

    protocol_version = "HTTP/1.1"
    server: Server

    def handle(self) -> None:
        if self._proven():
            super().handle()

    def _proven(self) -> bool:
        """Returns whether the connection is the agent's. Another connection is answered in HTTP, which it may
        speak.
        """
        self.connection.settimeout(proof.READ_S)
        try:
            if proof.is_proof(self.rfile.readline(proof.LINE_MAX), self.server.proof):
                self.connection.settimeout(None)
                return True
            self.connection.sendall(_UNPROVEN)
        except OSError:  # it sent nothing, or has left
            pass
        return False

    def respond(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/ping":
            ready = self.server.app.ready
            self._send(Response(200, b'{"status": "healthy"}') if ready else Response(204, b""))
            return
        try:
            body = self._body()
        except BadCall as error:
            self.close_connection = True
            self._send(_error(error.status, str(error)))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, address.path, address.query, headers, body)
        opened = AsyncExitStack()
        response = self.server.while_connected(self.server.app.respond(request, opened), self.connection)
        if response is None or response.parts is not None:
            try:
                if response is None or not self._send_parts(response):
                    self.close_connection = True
            finally:
                self.server.on_loop(opened.aclose())
        else:
            self._send(response)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = respond

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
        """Prints nothing: what is printed is the functions' own."""

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunks()
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > BODY_MAX:
            raise BadCall(413, f"the body must have at most {BODY_MAX} bytes; got {length:.30}")
        return self.rfile.read(int(length))

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            try:
                size = int(self.rfile.readline(100).partition(b";")[0], 16)
            except ValueError:
                raise BadCall(400, "the body has a chunk without a length") from None
            if size < 0 or len(body) + size > BODY_MAX:
                raise BadCall(413, f"the body must have at most {BODY_MAX} bytes")
            body += self.rfile.read(size)
            self.rfile.readline(100)
            if not size:
                return bytes(body)

    def _send_parts(self, response: Response) -> bool:
        """Returns whether all of it was sent. Its connection is closed otherwise, which shows that an end is
        missing."""
        assert response.parts is not None
        try:
            self.send_response(response.status)
            self.send_header("Content-Type", response.media_type)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if self.command == "HEAD":
                return True
            while part := self.server.while_connected(response.parts.next(), self.connection):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            if part is not None:
                self.wfile.write(b"0\r\n\r\n")
            return part is not None
        except ConnectionError:  # the caller has left
            return False
        except HandlerError as error:
            print(f"a response is broken off: {error}", flush=True)
            return False

    def _send(self, response: Response) -> None:
        with contextlib.suppress(ConnectionError):  # the caller has left
            self.send_response(response.status)
            if response.status != 204:
                self.send_header("Content-Type", response.media_type)
                self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            if self.command != "HEAD" and response.status != 204:
                self.wfile.write(response.body)


class Server(ThreadingHTTPServer):
    """The server at `address`, for connections with the proof of this token. Its loop runs on a thread of its
    own until `server_close`."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], content: Mapping[str, Any] | None, token: str) -> None:
        self.proof = token
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
        self._thread.start()
        self._runner = self.on_loop(_made_runner())
        self.app = App(content, self._runner)
        super().__init__(address, Handler)

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def while_connected(self, work: Coroutine[Any, Any, T], connection: socket.socket) -> T | None:
        """Returns the result of the work; None, with the work cancelled, once the other side has closed the
        connection.
        """
        future, done = asyncio.run_coroutine_threadsafe(work, self._loop), os.eventfd(0, os.EFD_CLOEXEC)
        future.add_done_callback(lambda _: os.eventfd_write(done, 1))
        try:
            waiting = select.poll()
            waiting.register(done, select.POLLIN)
            waiting.register(connection, select.POLLRDHUP)
            came = {number for number, _ in waiting.poll()}
            return future.result() if done in came or not future.cancel() else None
        finally:
            os.eventfd_read(done)  # whoever ends the work has no use for it any more
            os.close(done)

    def server_close(self) -> None:
        super().server_close()
        self.on_loop(self._runner.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def main() -> int:
    try:
        token = os.environ.pop(proof.VARIABLE, "")  # not for what it starts
        if not token:
            raise HandlerError(f"{proof.VARIABLE} is not set; the agent that starts this server sets it")
        server = Server(("127.0.0.1", int(os.environ["PORT"])), version_content(os.environ), token)
    except (HandlerError, KeyError, ValueError) as error:
        print(f"the server cannot start: {error}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    failed: list[str] = []

    def prepare() -> None:
        try:
            server.on_loop(server.app.prepare())
        except BaseException as error:
            failed.append(describe(error))
            server.shutdown()

    threading.Thread(target=prepare, name="prepare", daemon=True).start()
    with server:
        server.serve_forever(poll_interval=0.1)
    for why in failed:
        print(why, file=sys.stderr)
    return len(failed)


async def _made_runner() -> Runner:
    return Runner(CONCURRENT)


def _object(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadCall(422, f"the body is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise BadCall(422, "the body must be an object")
    return values


def _downloaded(url: str) -> str:
    """Downloads the packed code at a URL of the platform's store."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise CodeRefused("the URL of a bundle must be http or https")
    try:
        with urllib.request.urlopen(url, timeout=FETCH_S) as answer:
            data: bytes = answer.read(PACKED_MAX + 1)
    except OSError as error:
        raise HandlerError(f"the bundle cannot be fetched: {error}") from None
    return data.decode("ascii", "replace")


def _error(status: int, message: str) -> Response:
    return Response(status, json.dumps({"error": message}).encode())


def _print(line: str) -> None:
    print(line, flush=True)


def _ignore(value: Any) -> None:
    """Ignores a value: a response has no progress."""


if __name__ == "__main__":
    sys.exit(main())
