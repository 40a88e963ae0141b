"""Several addresses of one service: which one is called, and what is tried at the next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from stoker.client import KeyInTheClear, Unreachable
from stoker.client.failover import AsyncFailover
from tests.client.service import Awaiting, Service, ok, waiting

BOTH = "https://a.example, https://b.example:8443/stoker/v2"
NOBODY = httpx2.ConnectError("refused")
QUEUED = {"id": "j-u1", "status": "IN_QUEUE"}


@pytest.fixture(params=[waiting, Awaiting], ids=["waits", "awaits"])
def made(request: pytest.FixtureRequest) -> Iterator[Any]:
    clients = []

    def make(service: Service, url: str = BOTH, **settings: Any) -> Any:
        clients.append(request.param(url, "sk-1", service, **settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def places(service: Service) -> list[str]:
    return [str(request.url.copy_with(query=None)) for request in service.requests]


def test_the_next_address_gets_what_the_first_did_not_and_what_follows(made: Any) -> None:
    service = Service(NOBODY, ok(QUEUED), ok(QUEUED), NOBODY, ok(QUEUED))
    client = made(service)
    client.run("echo", {"n": 1})
    client.status("echo", "j-u1")
    client.status("echo", "j-u1")
    a, b = "https://a.example/v2/echo", "https://b.example:8443/stoker/v2/echo"
    assert places(service) == [
        f"{a}/run",
        f"{b}/run",
        f"{b}/status/j-u1",
        f"{b}/status/j-u1",
        f"{a}/status/j-u1",
    ]
    sent = service.requests[1]
    assert (sent.headers["Host"], sent.headers["Authorization"]) == ("b.example:8443", "Bearer sk-1")
    assert sent.content == service.requests[0].content == b'{"input":{"n":1}}'


def test_nobody_at_any_address_is_the_error_of_the_one_that_was_called(made: Any) -> None:
    service = Service(NOBODY, httpx2.ConnectTimeout("late"))
    with pytest.raises(Unreachable, match=r"no answer from https://a\.example: refused"):
        made(service, resends=0).run("echo", {})
    assert len(service.requests) == 2


def test_what_was_sent_is_not_sent_to_another_address_unless_it_may_be_repeated(made: Any) -> None:
    broken = httpx2.ReadError("reset")
    service = Service(broken)
    with pytest.raises(Unreachable):
        made(service).purge_queue("echo")
    assert len(service.requests) == 1
    service = Service(broken, NOBODY, ok(QUEUED))
    made(service).run("echo", {})
    keys = {request.headers["Idempotency-Key"] for request in service.requests}
    assert (len(service.requests), len(keys)) == (3, 1), "at the second, then again at the first"


def test_an_address_that_does_not_answer_is_not_called_first_again(made: Any) -> None:
    """A control that stands still accepts connections. Where the other one does not listen, it is called."""
    silent = httpx2.ReadTimeout("nothing came")
    service = Service(silent, ok(QUEUED), silent, NOBODY, ok(QUEUED))
    client = made(service)
    for _ in range(2):
        client.status("echo", "j-u1")
    a, b = "https://a.example/v2/echo", "https://b.example:8443/stoker/v2/echo"
    assert places(service) == [f"{at}/status/j-u1" for at in (a, b, b, a, b)]


class Still(httpx2.AsyncBaseTransport):
    """The host a takes requests and answers none of them, until `over`; b answers at once."""

    def __init__(self) -> None:
        self.over, self.waiting = asyncio.Event(), asyncio.Semaphore(0)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "b.example":
            return httpx2.Response(200)
        self.waiting.release()
        await self.over.wait()
        raise httpx2.ReadTimeout("nothing came")


@pytest.mark.parametrize("number", [1, 2, 7, 8])
async def test_of_requests_that_wait_at_an_address_together_the_first_moves_on_for_all(number: int) -> None:
    still = Still()
    bases = ["https://a.example", "https://b.example"]
    async with httpx2.AsyncClient(transport=AsyncFailover(bases, still), base_url=bases[0]) as client:
        asked = [asyncio.create_task(client.get("/")) for _ in range(number)]
        for _ in asked:
            await still.waiting.acquire()
        still.over.set()
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(end) for end in ends] == [httpx2.ReadTimeout] * number
        assert (await client.get("/")).status_code == 200


def test_each_address_is_looked_at_for_a_key_in_the_clear(made: Any) -> None:
    with pytest.warns(KeyInTheClear, match=r"goes to http://b\.example in the clear"):
        made(Service(), "https://a.example,http://b.example")
