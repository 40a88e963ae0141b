"""The client against a scripted service: what it sends, what it makes of each answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from stoker.client import (
    ApiError,
    BadRequest,
    Client,
    ClientError,
    Event,
    JobFailed,
    NotFound,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unreachable,
)

DONE = {
    "id": "j-u1",
    "status": "COMPLETED",
    "delayTime": 3,
    "executionTime": 7,
    "workerId": "w",
    "output": {"cost": 0.1},
}


class Service:
    """Answers each call with the next scripted response, and keeps the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def asked(self) -> list[str]:
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]


def ok(body: object) -> httpx.Response:
    return httpx.Response(200, json=body)


@pytest.fixture
def connect() -> Iterator[Callable[..., tuple[Client, Service]]]:
    clients: list[Client] = []

    def make(*answers: httpx.Response | Exception) -> tuple[Client, Service]:
        service = Service(*answers)
        clients.append(Client("http://stoker", "sk-1", transport=httpx.MockTransport(service)))
        return clients[-1], service

    yield make
    for client in clients:
        client.close()


Connect = Callable[..., tuple[Client, Service]]


def test_run_sends_the_input_and_the_key(connect: Connect) -> None:
    client, service = connect(ok({"id": "j-u1", "status": "IN_QUEUE"}))
    job = client.run("echo", {"x": 1}, policy={"ttl": 20_000})
    assert (job.id, job.status, job.ended) == ("j-u1", "IN_QUEUE", False)
    (request,) = service.requests
    assert service.asked() == ["POST /v2/echo/run"]
    assert request.headers["Authorization"] == "Bearer sk-1"
    assert json.loads(request.content) == {"input": {"x": 1}, "policy": {"ttl": 20_000}}


def test_a_base_url_may_name_the_version_already() -> None:
    service = Service(ok(DONE))
    with Client("http://stoker/v2/", "k", transport=httpx.MockTransport(service)) as client:
        client.status("echo", "j-u1")
    assert service.asked() == ["GET /v2/echo/status/j-u1"]


def test_runsync_reads_the_whole_record(connect: Connect) -> None:
    client, service = connect(ok(DONE))
    job = client.runsync("echo", {}, wait_ms=1000)
    assert service.asked() == ["POST /v2/echo/runsync?wait=1000"]
    assert (job.output, job.delay_time, job.execution_time, job.worker_id) == ({"cost": 0.1}, 3, 7, "w")
    assert job.succeeded


def test_what_was_not_sent_is_none_and_not_zero(connect: Connect) -> None:
    client, _ = connect(ok({"id": "j", "status": "IN_QUEUE"}))
    job = client.status("echo", "j")
    assert (job.delay_time, job.execution_time, job.worker_id, job.error) == (None, None, None, None)


def test_wait_asks_again_until_the_end(connect: Connect) -> None:
    client, service = connect(ok({"id": "j-u1", "status": "IN_PROGRESS"}), ok(DONE))
    assert client.wait("echo", "j-u1").succeeded
    assert len(service.requests) == 2


def test_wait_raises_when_the_job_ended_badly(connect: Connect) -> None:
    client, _ = connect(ok({"id": "j", "status": "TIMED_OUT", "error": "took longer than 5 s"}))
    with pytest.raises(JobFailed, match="TIMED_OUT: took longer than 5 s") as caught:
        client.wait("echo", "j")
    assert caught.value.job.status == "TIMED_OUT"


def test_stream_gives_what_came_with_the_terminal_status_too(connect: Connect) -> None:
    client, service = connect(
        ok({"status": "IN_QUEUE", "stream": []}),
        ok({"status": "IN_PROGRESS", "stream": [{"output": 0}]}),
        ok({"status": "COMPLETED", "stream": [{"output": 1}, {"output": {"two": 2}}]}),
    )
    assert list(client.stream("echo", "j", wait_ms=2000)) == [0, 1, {"two": 2}]
    assert service.asked() == ["GET /v2/echo/stream/j?wait=2000"] * 3


def test_events_are_read_as_they_come(connect: Connect) -> None:
    text = 'event: chunk\nid: 1-0\ndata: {"a": 1}\n\n: a comment\nevent: end\nid: 1-1\ndata: null\n\n'
    client, service = connect(httpx.Response(200, text=text))
    assert list(client.events("echo", "j", after="1-3")) == [
        Event("chunk", "1-0", {"a": 1}),
        Event("end", "1-1", None),
    ]
    assert service.requests[0].headers["Last-Event-ID"] == "1-3"
    assert service.requests[0].headers["Accept"] == "text/event-stream"


def test_events_of_an_unknown_job(connect: Connect) -> None:
    client, _ = connect(httpx.Response(404, json={"error": "no job j"}))
    with pytest.raises(NotFound, match="no job j"):
        list(client.events("echo", "j"))


def test_cancel_and_health(connect: Connect) -> None:
    client, service = connect(
        ok({"id": "j", "status": "CANCELLED"}), ok({"jobs": {"inQueue": 2}, "workers": {"idle": 1}})
    )
    assert client.cancel("echo", "j").status == "CANCELLED"
    health = client.health("echo")
    assert (health.jobs["inQueue"], health.workers["idle"]) == (2, 1)
    assert service.asked() == ["POST /v2/echo/cancel/j", "GET /v2/echo/health"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, BadRequest), (401, Unauthorized), (404, NotFound), (413, TooLarge), (500, ApiError)],
)
def test_each_refusal_is_its_own_error(connect: Connect, status: int, kind: type[ApiError]) -> None:
    client, _ = connect(httpx.Response(status, json={"error": "width is 1000; allowed: 256 to 1536"}))
    with pytest.raises(kind, match="width is 1000") as caught:
        client.run("text-to-image", {"width": 1000})
    assert type(caught.value) is kind
    assert caught.value.status == status


def test_unavailable_says_when_to_come_back(connect: Connect) -> None:
    client, _ = connect(httpx.Response(503, json={"error": "the disk is full"}, headers={"Retry-After": "2"}))
    with pytest.raises(Unavailable) as caught:
        client.run("echo", {})
    assert caught.value.retry_after == 2


def test_an_error_that_is_not_json_is_still_told(connect: Connect) -> None:
    client, _ = connect(httpx.Response(502, text="<html>bad gateway</html>"))
    with pytest.raises(ApiError, match="502 Bad Gateway"):
        client.health("echo")


def test_a_refused_connection_is_unreachable(connect: Connect) -> None:
    client, _ = connect(httpx.ConnectError("Connection refused"))
    with pytest.raises(Unreachable, match="no answer from http://stoker: Connection refused"):
        client.status("echo", "j")


def test_a_stream_that_breaks_is_unreachable(connect: Connect) -> None:
    client, _ = connect(httpx.ReadError("reset"))
    with pytest.raises(Unreachable, match="reset"):
        list(client.events("echo", "j"))


@pytest.mark.parametrize("text", ["not json", "[1]"])
def test_an_answer_of_another_shape_is_told(connect: Connect, text: str) -> None:
    client, _ = connect(httpx.Response(200, text=text))
    with pytest.raises(ClientError):
        client.status("echo", "j")
