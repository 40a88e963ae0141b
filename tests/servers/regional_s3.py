"""A small S3 server on loopback: its bucket is in one region, and requests signed for another are refused."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "callers"
REGION = "eu-nl-1"

_SIGNED_FOR = re.compile(r"Credential=[^/]+/\d{8}/([^/]+)/s3/aws4_request")


@dataclass
class RegionalS3:
    """`names`: where refusals name the region: "region", "message", "header", "endpoint", "location",
    "constraint" or "". `host`: the only host at which the bucket is, if not empty; others redirect.
    `answers`: the status and code with which it answers a request instead, by "METHOD key". `gate`: what it
    waits for before it answers. `seen`: method, key and region of each request. It checks no signature."""

    names: str = "region"
    host: str = ""
    region: str = REGION
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    gate: threading.Event | None = None
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    port: int = 0

    def endpoint(self, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}"

    def refuse(self, request: _Request) -> bool:
        """Returns whether the request was refused."""
        elsewhere = self.host and request.host != self.host
        if not elsewhere and request.region == self.region:
            return False
        endpoint = f"{BUCKET}.s3-{self.region}.amazonaws.com"
        text, headers = f"signed for '{request.region}'", {}
        if self.names == "message":
            text = f"the region '{request.region}' is wrong; expecting '{self.region}'"
        if self.names == "constraint":
            text = f"The {self.region} location constraint is incompatible for this endpoint"
        if self.names == "header":
            headers = {"x-amz-bucket-region": self.region}
        if self.names == "location":
            headers = {"Location": f"http://{endpoint}:{self.port}/"}
        more = f"<Region>{self.region}</Region>" if self.names == "region" else ""
        more += f"<Endpoint>{endpoint}</Endpoint>" if self.names == "endpoint" else ""
        status, code = (301, "PermanentRedirect") if elsewhere else (400, "AuthorizationHeaderMalformed")
        if self.names == "constraint":
            status, code = 400, "IllegalLocationConstraintException"
        if self.names == "location":
            status, code = 307, "TemporaryRedirect"
        request.error(status, code, text, more, headers)
        return True

    def answer(self, request: _Request) -> None:
        method, key = request.command, request.key
        self.seen.append((method, key, request.region))
        if self.gate is not None:
            self.gate.wait(60)
        if (other := self.answers.get(f"{method} {key}")) is not None:
            request.error(*other, "as the test said")
        elif self.refuse(request):
            pass
        elif request.bucket != BUCKET:
            request.error(404, "NoSuchBucket", "there is no such bucket")
        else:
            getattr(self, f"_{method.lower()}")(request, key)

    def _put(self, request: _Request, key: str) -> None:
        if "uploadId" in request.query:
            self.uploads[request.query["uploadId"]][int(request.query["partNumber"])] = request.body
        else:
            self.objects[key] = request.body
        request.reply(200, b"", {"ETag": '"e"'})

    def _post(self, request: _Request, key: str) -> None:
        if "uploads" in request.query:
            upload = f"upload-{len(self.seen)}"
            self.uploads[upload] = {}
            request.reply(200, f"<R><UploadId>{upload}</UploadId></R>".encode())
        else:
            parts = self.uploads.pop(request.query["uploadId"])
            self.objects[key] = b"".join(parts[n] for n in sorted(parts))
            request.reply(200, b"<R><ETag>e</ETag></R>")

    def _delete(self, request: _Request, key: str) -> None:
        self.uploads.pop(request.query.get("uploadId", ""), None)
        request.reply(204, b"")

    def _get(self, request: _Request, key: str) -> None:
        if key in self.objects:
            request.reply(200, self.objects[key])
        else:
            request.error(404, "NoSuchKey", "there is no such key")

    def _head(self, request: _Request, key: str) -> None:
        request.reply(200 if not key or key in self.objects else 404, b"")


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    serves: RegionalS3

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def _serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query, True).items()}
        self.host = self.headers["Host"].partition(":")[0]
        path = unquote(parts.path).removeprefix("/")
        if self.host.startswith(f"{BUCKET}."):
            self.host, path = self.host.removeprefix(f"{BUCKET}."), f"{BUCKET}/{path}"
        self.bucket, _, self.key = path.partition("/")
        signed = self.headers.get("Authorization") or f"Credential={self.query.get('X-Amz-Credential')}"
        found = _SIGNED_FOR.search(signed)
        self.region = found[1] if found else ""
        self.serves.answer(self)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            **(headers or {}),
            "Content-Length": str(len(body)),
            "Connection": "close",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def error(
        self, status: int, code: str, text: str, more: str = "", headers: dict[str, str] | None = None
    ) -> None:
        body = f"<Error><Code>{code}</Code><Message>{text}</Message>{more}</Error>"
        self.reply(status, body.encode(), headers)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@contextlib.contextmanager
def regional_s3(*, names: str = "region", host: str = "", region: str = REGION) -> Iterator[RegionalS3]:
    serves = RegionalS3(names, host, region)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Request", (_Request,), {"serves": serves}))
    server.daemon_threads = True
    serves.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield serves
    finally:
        if serves.gate is not None:
            serves.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
