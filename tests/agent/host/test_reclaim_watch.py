"""The watch against a metadata service on loopback that answers as each cloud's does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stoker.agent.host.reclaim_watch import ReclaimWatch
from stoker.outbound.errors import FetchFailed, TooLarge, UrlRefused
from stoker.outbound.metadata_service import ADDRESS, ANSWER_MOST, MetadataService
from tests.servers.loopback_server import served

NOW = 1_600_000_000.0
AWS = "/latest/meta-data/spot/instance-action"
TAKEN = b'{"action": "terminate", "time": "2020-09-13T12:28:10Z"}'
Answer = tuple[int, bytes]


class Service(ThreadingHTTPServer):
    """`answers` are those to each path, in their order; the last one stays. `seen`: what was asked."""

    def __init__(self, answers: dict[str, list[Answer]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.seen: list[tuple[str, str, dict[str, str]]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.seen.append((self.command, path, {name.lower(): v for name, v in self.headers.items()}))
        left = self.server.answers.get(path, [(404, b"")])
        status, body = left.pop(0) if len(left) > 1 else left[0]
        self.send_response(status)
        if status in (301, 302):
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def service(answers: dict[str, list[Answer]]) -> Iterator[Service]:
    made = Service(answers)
    with served(made):
        yield made


def watched(cloud: str, address: str) -> list[tuple[str, float]]:
    left: list[tuple[str, float]] = []
    asked = MetadataService(address).ask
    watch = ReclaimWatch(cloud, "gpu-1", asked, lambda *so: left.append(so), lambda: NOW, every_s=0.0)
    asyncio.run(asyncio.wait_for(watch.run(), 60))
    return left


def test_aws_is_asked_with_a_token_until_there_is_a_notice() -> None:
    answers = {"/latest/api/token": [(200, b"a token")], AWS: [(404, b""), (404, b""), (200, TAKEN)]}
    with service(answers) as made:
        why = "aws takes the host of node gpu-1 back at 12:28:10 UTC"
        assert watched("aws", made.address) == [(why, 90.0)]
        asked = [(method, path) for method, path, _ in made.seen]
        assert asked == [("PUT", "/latest/api/token"), ("GET", AWS)] * 3
        tokens = {headers.get("x-aws-ec2-metadata-token") for _, path, headers in made.seen if path == AWS}
        assert tokens == {"a token"}


def test_gcp_and_azure_are_asked_with_the_header_that_they_want() -> None:
    preempted = "/computeMetadata/v1/instance/preempted"
    with service({preempted: [(200, b"FALSE"), (200, b"TRUE")]}) as made:
        assert watched("gcp", made.address)[0][1] == 30.0
        assert {headers["metadata-flavor"] for _, _, headers in made.seen} == {"Google"}
    events = b'{"Events": [{"EventType": "Preempt", "Resources": ["vm-7"], "NotBefore": ""}]}'
    azure = {
        "/metadata/instance/compute/name": [(200, b"vm-7")],
        "/metadata/scheduledevents": [(200, events)],
    }
    with service(azure) as made:
        assert watched("azure", made.address)[0][1] == 0.0
        assert {headers["metadata"] for _, _, headers in made.seen} == {"true"}


def test_odd_answers_are_said_once_and_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    token = [(200, b"a token")]
    odd = [(500, b"out of order"), (500, b"out of order"), (302, b""), (200, b"{}"), (200, TAKEN)]
    with service({"/latest/api/token": token, AWS: odd, "/elsewhere": [(200, TAKEN)]}) as made:
        with caplog.at_level(logging.WARNING):
            assert len(watched("aws", made.address)) == 1
        assert all(path != "/elsewhere" for _, path, _ in made.seen), "no redirect is followed"
    said = [record.message for record in caplog.records if "it is not known" in record.message]
    assert len(said) == 3, said


def test_answers_are_bounded_and_only_link_local_addresses_are_asked() -> None:
    with service({"/large": [(200, b"x" * (ANSWER_MOST + 1))]}) as made, pytest.raises(TooLarge):
        asyncio.run(MetadataService(made.address).ask("GET", "/large", {}))
    with pytest.raises(FetchFailed, match="does not answer"):
        asyncio.run(MetadataService(made.address).ask("GET", "/closed", {}))
    for address in ("10.0.0.1", "93.184.216.34:80"):
        with pytest.raises(UrlRefused, match="link-local"):
            MetadataService(address)
    assert ADDRESS == "169.254.169.254"
