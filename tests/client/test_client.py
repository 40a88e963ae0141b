"""Either client against a scripted service: what it sends, what it makes of each answer."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stoker.client import (
    ApiError,
    AsyncClient,
    Attempt,
    AttemptLog,
    BadRequest,
    Client,
    ClientError,
    JobAttempts,
    JobFailed,
    JobPage,
    KeyInTheClear,
    KeyReused,
    NotEnded,
    NotFound,
    RateLimited,
    TooLarge,
    Unauthorized,
    Unavailable,
    WorkerLog,
)
from tests.certificates import make_certificate
from tests.client.service import Service, ok, refused, waiting

DONE = {
    "id": "j-u1",
    "status": "COMPLETED",
    "delayTime": 3,
    "executionTime": 7,
    "workerId": "w",
    "output": {"cost": 0.1},
}
QUEUED = {"id": "j-u1", "status": "IN_QUEUE"}

Connect = Callable[..., tuple[Any, Service]]


def test_run_sends_the_input_and_the_key(connect: Connect) -> None:
    client, service = connect(ok(QUEUED))
    job = client.run("echo", {"x": 1}, policy={"ttl": 20_000})
    assert (job.id, job.status, job.ended) == ("j-u1", "IN_QUEUE", False)
    (request,) = service.requests
    assert service.request_lines() == ["POST /v2/echo/run"]
    assert request.headers["Authorization"] == "Bearer sk-1"
    assert json.loads(request.content) == {"input": {"x": 1}, "policy": {"ttl": 20_000}}


def test_all_options_of_a_submission_are_sent(connect: Connect) -> None:
    client, service = connect(ok(QUEUED))
    client.run(
        "echo", {}, webhook="http://w", s3_config={"bucketName": "b"}, policy=None, idempotency_key="k-1"
    )
    assert json.loads(service.requests[0].content) == {
        "input": {},
        "webhook": "http://w",
        "s3Config": {"bucketName": "b"},
    }
    assert service.requests[0].headers["Idempotency-Key"] == "k-1"


@pytest.mark.parametrize("option", ["ttl", "webook"])
def test_an_option_that_there_is_not_is_refused(connect: Connect, option: str) -> None:
    client, service = connect()
    with pytest.raises(TypeError, match=option):
        client.run("echo", {}, **{option: 1})
    assert service.requests == []


@pytest.mark.parametrize("key", ["", "a b", "kö", "k" * 256, "a\nb"])
def test_a_key_that_no_header_carries_is_reported(connect: Connect, key: str) -> None:
    client, service = connect()
    with pytest.raises(ClientError, match="1 to 255 visible ASCII characters"):
        client.run("echo", {}, idempotency_key=key)
    assert service.requests == []


def test_a_base_url_may_name_the_version_already() -> None:
    service = Service(ok(DONE))
    with waiting("https://stoker/v2/", "k", service) as client:
        client.status("echo", "j-u1")
    assert service.request_lines() == ["GET /v2/echo/status/j-u1"]


def test_a_name_stays_one_segment_of_the_path(connect: Connect) -> None:
    client, service = connect(refused(404, "no"))
    with pytest.raises(NotFound):
        client.status("a/../b", "../run?x=1")
    assert service.request_lines() == ["GET /v2/a%2F..%2Fb/status/..%2Frun%3Fx%3D1"]


def test_runsync_reads_the_whole_record(connect: Connect) -> None:
    client, service = connect(ok(DONE))
    job = client.runsync("echo", {}, wait_ms=1000)
    assert service.request_lines() == ["POST /v2/echo/runsync?wait=1000"]
    assert (job.output, job.delay_time, job.execution_time, job.worker_id) == ({"cost": 0.1}, 3, 7, "w")
    assert job.succeeded


def test_a_held_call_may_take_as_long_as_it_asks_for(connect: Connect) -> None:
    client, service = connect(ok(DONE), ok(DONE), ok(DONE), timeout_s=3.0)
    client.runsync("echo", {}, wait_ms=200_000)
    client.runsync("echo", {})
    client.status("echo", "j-u1")
    assert [request.extensions["timeout"]["read"] for request in service.requests] == [215.0, 315.0, 3.0]


def test_what_was_not_sent_is_none_and_not_zero(connect: Connect) -> None:
    client, _ = connect(ok(QUEUED))
    job = client.status("echo", "j")
    assert (job.delay_time, job.execution_time, job.worker_id, job.error) == (None, None, None, None)


def test_status_has_the_reason_and_may_shorten_the_jobs_life(connect: Connect) -> None:
    client, service = connect(ok(QUEUED | {"reason": "no worker is ready"}))
    assert client.status("echo", "j", ttl_ms=5000).reason == "no worker is ready"
    assert service.request_lines() == ["GET /v2/echo/status/j?ttl=5000"]


def test_wait_asks_again_until_the_end(connect: Connect) -> None:
    client, service = connect(ok({"id": "j-u1", "status": "IN_PROGRESS"}), ok(DONE))
    assert client.wait("echo", "j-u1").succeeded
    assert service.request_lines() == ["GET /v2/echo/status-sync/j-u1?wait=90000"] * 2


def test_wait_ends_after_its_time(connect: Connect) -> None:
    client, service = connect(ok(QUEUED), ok(QUEUED), ok(QUEUED), takes=60.0)
    with pytest.raises(NotEnded, match=r"job j-u1 is IN_QUEUE after a wait of 120\.5 s") as caught:
        client.wait("echo", "j-u1", timeout_s=120.5)
    assert caught.value.job.status == "IN_QUEUE"
    waits = [request.url.params["wait"] for request in service.requests]
    assert waits == ["90000", "60500", "1000"], "never below what the service allows"


def test_wait_raises_when_the_job_ended_badly(connect: Connect) -> None:
    client, _ = connect(ok({"id": "j", "status": "TIMED_OUT", "error": "took longer than 5 s"}))
    with pytest.raises(JobFailed, match="TIMED_OUT: took longer than 5 s") as caught:
        client.wait("echo", "j")
    assert caught.value.job.status == "TIMED_OUT"


def test_the_reason_of_a_purged_job_is_purged(connect: Connect) -> None:
    client, _ = connect(ok({"id": "j", "status": "CANCELLED", "reason": "purged"}))
    with pytest.raises(JobFailed, match="job j ended CANCELLED: purged"):
        client.wait("echo", "j")


def test_stream_gives_what_came_with_the_terminal_status_too(connect: Connect) -> None:
    client, service = connect(
        ok({"status": "IN_QUEUE", "stream": []}),
        ok({"status": "IN_PROGRESS", "stream": [{"output": 0}]}),
        ok({"status": "COMPLETED", "stream": [{"output": 1}, {"output": {"two": 2}}]}),
    )
    assert list(client.stream("echo", "j", wait_ms=2000)) == [0, 1, {"two": 2}]
    assert service.request_lines() == ["GET /v2/echo/stream/j?wait=2000"] * 3


def test_cancel_retry_purge_and_health(connect: Connect) -> None:
    client, service = connect(
        ok({"id": "j", "status": "CANCELLED"}),
        ok({"id": "j", "status": "IN_QUEUE"}),
        ok({"removed": 12, "status": "completed"}),
        ok({"jobs": {"inQueue": 2}, "workers": {"idle": 1}}),
    )
    assert client.cancel("echo", "j").status == "CANCELLED"
    assert client.retry("echo", "j").status == "IN_QUEUE"
    assert client.purge_queue("echo") == 12
    health = client.health("echo")
    assert (health.jobs["inQueue"], health.workers["idle"]) == (2, 1)
    assert service.request_lines() == [
        "POST /v2/echo/cancel/j",
        "POST /v2/echo/retry/j",
        "POST /v2/echo/purge-queue",
        "GET /v1/endpoints/echo/health",
    ]


def test_logs_are_reported_attempt_by_attempt(connect: Connect) -> None:
    first = {"attempt": 1, "worker": "w", "lines": ["a", "b"]}
    second = first | {"attempt": 2, "printedAt": [5, 6]}
    client, service = connect(ok({"id": "j", "logs": [first, second]}))
    assert client.logs("echo", "j") == (
        AttemptLog(1, "w", ("a", "b")),
        AttemptLog(2, "w", ("a", "b"), (5, 6)),
    )
    assert service.request_lines() == ["GET /v2/echo/logs/j"]


def test_attempts_with_their_moments(connect: Connect) -> None:
    lost = {"attempt": 1, "worker": "w1", "node": "n1", "assignedAt": 2, "endedAt": 5, "end": "lost"}
    ended = {"attempt": 2, "worker": "w2", "assignedAt": 6, "startedAt": 7, "firstChunkAt": 8, "later": 1}
    ended |= {"uploadingAt": 9, "endedAt": 10, "executionTime": 2, "end": "completed"}
    client, service = connect(
        ok({"id": "j", "createdAt": 1, "endedAt": 10, "attempts": [lost | {"reason": "it died"}, ended]}),
        ok({"id": "j", "createdAt": 1, "attempts": []}),
    )
    found = client.attempts("echo", "j")
    assert (found.created_at, found.ended_at) == (1, 10)
    assert found.attempts == (
        Attempt(1, "w1", "n1", 2, ended_at=5, end="lost", reason="it died"),
        Attempt(2, "w2", None, 6, 7, 8, 9, 10, 2, "completed"),
    )
    assert client.attempts("echo", "j") == JobAttempts(1, None, ())
    assert service.request_lines() == ["GET /v2/echo/attempts/j"] * 2


def test_the_input_of_a_job(connect: Connect) -> None:
    client, service = connect(ok({"id": "j", "input": {"a": [1]}}), refused(403, "not yours"))
    assert client.job_input("echo", "j") == {"a": [1]}
    with pytest.raises(ApiError, match="not yours"):
        client.job_input("echo", "j")
    assert service.request_lines() == ["GET /v2/echo/input/j"] * 2


def test_the_case_of_a_failed_job(connect: Connect) -> None:
    client, service = connect(ok({"case": 1, "id": "j/1"}))
    assert client.case("echo", "j/1") == {"case": 1, "id": "j/1"}
    assert service.request_lines() == ["GET /v2/echo/case/j%2F1"]


def test_the_last_lines_of_a_worker(connect: Connect) -> None:
    client, service = connect(ok({"id": "w/1", "lines": ["a", "b"], "printedAt": [5, 6]}))
    assert client.worker_log("my app", "w/1") == WorkerLog("w/1", ("a", "b"), (5, 6))
    assert service.request_lines() == ["GET /v1/endpoints/my%20app/workers/w%2F1/logs"]


def test_one_page_of_requests(connect: Connect) -> None:
    client, service = connect(ok({"requests": [QUEUED | {"createdAt": 1_700}], "cursor": "9"}))
    page = client.requests("echo", status="IN_QUEUE", since=5, limit=10, cursor="20", error="a b", node=None)
    assert isinstance(page, JobPage)
    assert page.cursor == "9"
    assert [(job.id, job.created_at) for job in page.jobs] == [("j-u1", 1_700)]
    assert service.request_lines() == [
        "GET /v2/echo/requests?status=IN_QUEUE&since=5&error=a+b&limit=10&cursor=20"
    ]


def test_all_requests_goes_on_over_an_empty_page_and_a_limit(connect: Connect) -> None:
    client, service = connect(
        ok({"requests": [QUEUED], "cursor": "8"}),
        ok({"requests": [], "cursor": "5"}),
        refused(429, "requests: at most 10 in 10 s", Retry_After="7"),
        ok({"requests": [DONE], "cursor": None}),
    )
    jobs = list(client.all_requests("echo", page=2))
    assert [job.status for job in jobs] == ["IN_QUEUE", "COMPLETED"]
    assert [request.url.params.get("cursor") for request in service.requests] == [None, "8", "5", "5"]
    assert service.slept == [7.0]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (404, NotFound),
        (413, TooLarge),
        (422, KeyReused),
        (500, ApiError),
    ],
)
def test_each_refusal_is_its_own_error(connect: Connect, status: int, kind: type[ApiError]) -> None:
    client, service = connect(refused(status, "width is 1000; allowed: 256 to 1536"))
    with pytest.raises(kind, match="width is 1000") as caught:
        client.run("text-to-image", {"width": 1000})
    assert type(caught.value) is kind
    assert caught.value.status == status
    assert len(service.requests) == 1, "what was refused is not sent again"


@pytest.mark.parametrize(("status", "kind"), [(503, Unavailable), (429, RateLimited)])
def test_a_temporary_refusal_has_retry_after(connect: Connect, status: int, kind: type[ApiError]) -> None:
    client, _ = connect(refused(status, "the disk is full", Retry_After="2"), resends=0)
    with pytest.raises(kind) as caught:
        client.run("echo", {})
    assert caught.value.retry_after == 2


def test_an_error_that_is_not_json_is_still_reported(connect: Connect) -> None:
    client, _ = connect(httpx2.Response(502, text="<html>bad gateway</html>"))
    with pytest.raises(ApiError, match="502 Bad Gateway"):
        client.health("echo")


@pytest.mark.parametrize("text", ["not json", "[1]", '{"status": "IN_QUEUE"}', "null"])
def test_an_answer_of_another_shape_is_reported(connect: Connect, text: str) -> None:
    client, _ = connect(httpx2.Response(200, text=text))
    with pytest.raises(ClientError):
        client.status("echo", "j")


def test_a_key_that_can_be_read_on_its_way_is_warned_of(connect: Connect) -> None:
    for url in ("http://127.0.0.1:8000", "http://localhost", "http://[::1]:8000", "https://stoker.example"):
        waiting(url, "k", Service()).close()
    for url in ("http://stoker.example", "http://10.0.0.7:8000/v2", "http://localhost.example"):
        with pytest.warns(KeyInTheClear, match=f"goes to {re.escape(url)} in the clear") as reported:
            waiting(url, "k", Service()).close()
        assert reported[0].filename.endswith("service.py"), "whoever makes the client is named"


def test_an_authority_of_ones_own(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.files.cert, made.files.key)
        answering = threading.Thread(target=_answer_one, args=(context, listener))
        answering.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url, "sk-1", resends=0, ca_file=made.files.cert) as stoker:
            assert stoker.status("echo", "j-u1").status == "IN_QUEUE"
        answering.join()
    with pytest.raises(ClientError, match=r"key\.pem is not a file of certificate authorities"):
        Client(url, "sk-1", ca_file=made.files.key)


def _answer_one(context: ssl.SSLContext, listener: socket.socket) -> None:
    plain, _ = listener.accept()
    with context.wrap_socket(plain, server_side=True) as caller:
        caller.recv(65536)
        body = json.dumps(QUEUED).encode()
        caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_address_and_key_are_those_of_the_environment_or_of_dotenv(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STOKER_URL", "STOKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ClientError, match=r"no API key: give one, or set STOKER_API_KEY in the environment"):
        kind()
    requested: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requested.append((str(request.url), request.headers["Authorization"]))
        return httpx2.Response(200, json={"jobs": {}, "workers": {}})

    async def get_health(*arguments: str) -> None:
        client = kind(*arguments, transport=httpx2.MockTransport(answer))
        reported = client.health("echo")
        closed = (await reported, client.close())[1] if kind is AsyncClient else client.close()
        if closed is not None:
            await closed

    (tmp_path / ".env").write_text("STOKER_URL=https://there\nSTOKER_API_KEY=sk_file\n")
    await get_health()
    monkeypatch.setenv("STOKER_API_KEY", "sk_environment")
    await get_health()
    (tmp_path / ".env").unlink()
    await get_health()
    monkeypatch.setenv("STOKER_URL", "https://elsewhere")
    await get_health()
    await get_health("https://given", "sk_given")
    assert requested == [
        ("https://there/v1/endpoints/echo/health", "Bearer sk_file"),
        ("https://there/v1/endpoints/echo/health", "Bearer sk_environment"),
        ("http://127.0.0.1:8000/v1/endpoints/echo/health", "Bearer sk_environment"),
        ("https://elsewhere/v1/endpoints/echo/health", "Bearer sk_environment"),
        ("https://given/v1/endpoints/echo/health", "Bearer sk_given"),
    ]


def test_a_replay_on_a_node(connect: Connect) -> None:
    client, service = connect(*[ok({"id": "r", "endpoint": "e2", "status": "IN_QUEUE"})] * 2)
    assert client.replay("echo", "j/1", "gpu 1", from_start=True, stop_after=2)["endpoint"] == "e2"
    client.replay("echo", "j", "n", seed=0)
    assert service.request_lines() == [
        "POST /v2/echo/replay/j%2F1?node=gpu+1&stopAfter=2&fromStart=true",
        "POST /v2/echo/replay/j?node=n&seed=0",
    ]
