"""What is sent again, how often, after which pause; and what never is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from stoker.client import AsyncClient, Client, ClientError, RateLimited, Unavailable, Unreachable
from tests.client.service import Service, ok, refused

QUEUED = {"id": "j-u1", "status": "IN_QUEUE"}
DONE = {"id": "j-u1", "status": "COMPLETED"}

Connect = Callable[..., tuple[Any, Service]]


def keys(service: Service) -> list[str | None]:
    return [request.headers.get("Idempotency-Key") for request in service.requests]


@pytest.mark.parametrize("operation", ["run", "runsync"])
def test_a_submission_goes_out_again_with_its_own_key(connect: Connect, operation: str) -> None:
    client, service = connect(httpx2.ReadError("reset"), httpx2.ConnectError("refused"), ok(QUEUED))
    assert getattr(client, operation)("echo", {"x": 1}).id == "j-u1"
    (key,) = set(keys(service))
    assert key is not None
    assert len(key) == 32
    assert len({request.content for request in service.requests}) == 1
    assert service.slept == [0.5, 1.0]


def test_each_call_draws_another_key(connect: Connect) -> None:
    client, service = connect(ok(QUEUED), ok(QUEUED))
    client.run("echo", {})
    client.run("echo", {})
    assert len(set(keys(service))) == 2


def test_the_callers_own_key_is_kept(connect: Connect) -> None:
    client, service = connect(httpx2.ReadTimeout("late"), ok(QUEUED))
    client.run("echo", {}, idempotency_key="order-7")
    assert keys(service) == ["order-7", "order-7"]


def test_the_last_error_is_reported_when_the_resends_are_used_up(connect: Connect) -> None:
    client, service = connect(*[httpx2.ConnectError("Connection refused")] * 4)
    with pytest.raises(Unreachable, match="no answer from https://stoker: Connection refused"):
        client.run("echo", {})
    assert service.slept == [0.5, 1.0, 2.0]
    assert service.all_used()


def test_a_refused_connection_is_reported_alike_by_both_clients() -> None:
    async def awaited(url: str) -> None:
        async with AsyncClient(url, "sk_1_2", resends=0) as stoker:
            await stoker.status("echo", "j")

    with socket.socket() as taken:  # bound and not listening
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unreachable, match=f"no answer from {url}: Connection refused$"):
            asyncio.run(awaited(url))
        with pytest.raises(Unreachable, match=f"no answer from {url}: Connection refused$"):
            Client(url, "sk_1_2", resends=0).status("echo", "j")


@pytest.mark.parametrize("status", [429, 503])
def test_it_resends_after_retry_after(connect: Connect, status: int) -> None:
    client, service = connect(
        refused(status, "later", Retry_After="3"), refused(status, "later", Retry_After="0"), ok(QUEUED)
    )
    client.run("echo", {})
    assert service.slept == [3.0, 1.0]


def test_a_wait_that_is_too_long_is_the_callers_affair(connect: Connect) -> None:
    client, service = connect(refused(429, "run: at most 1000 in 10 s", Retry_After="31"))
    with pytest.raises(RateLimited, match="at most 1000") as caught:
        client.run("echo", {})
    assert caught.value.retry_after == 31
    assert service.slept == []


def test_unavailable_without_a_time_is_reported_at_once(connect: Connect) -> None:
    client, service = connect(refused(503, "down"))
    with pytest.raises(Unavailable):
        client.run("echo", {})
    assert service.slept == []


@pytest.mark.parametrize(
    ("name", "arguments"), [("retry", ("echo", "j")), ("purge_queue", ("echo",)), ("stream", ("echo", "j"))]
)
def test_what_a_second_time_would_change_is_sent_once(
    connect: Connect, name: str, arguments: tuple[str, ...]
) -> None:
    client, service = connect(httpx2.ReadError("reset"))
    with pytest.raises(Unreachable):
        list(getattr(client, name)(*arguments))
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "body"),
    [
        ("status", ("echo", "j"), QUEUED),
        ("cancel", ("echo", "j"), QUEUED),
        ("logs", ("echo", "j"), {"id": "j", "logs": []}),
        ("worker_log", ("echo", "w"), {"id": "w", "lines": []}),
        ("requests", ("echo",), {"requests": [], "cursor": None}),
        ("health", ("echo",), {"jobs": {}, "workers": {}}),
    ],
)
def test_what_changes_nothing_is_sent_again(
    connect: Connect, name: str, arguments: tuple[str, ...], body: object
) -> None:
    client, service = connect(httpx2.RemoteProtocolError("gone"), ok(body))
    getattr(client, name)(*arguments)
    assert len(service.requests) == 2


def test_waiting_survives_a_service_that_starts_anew(connect: Connect) -> None:
    client, service = connect(
        httpx2.RemoteProtocolError("gone"),
        httpx2.ConnectError("refused"),
        ok(QUEUED),
        httpx2.ReadError("gone"),
        ok(DONE),
    )
    assert client.wait("echo", "j-u1").succeeded
    assert service.slept == [0.5, 1.0, 0.5], "each held call has its own resends"


def test_an_address_that_takes_no_request_is_reported_at_once(connect: Connect) -> None:
    client, service = connect(httpx2.UnsupportedProtocol("unsupported protocol 'ftp://'"))
    with pytest.raises(ClientError, match=r"no request can be sent to .*: unsupported protocol"):
        client.status("echo", "j")
    assert service.slept == []
