"""The connections of the page: what is open when the token of a session is renewed."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial

import httpx2
import pytest

from stoker.client import AsyncClient
from stoker.page.access import connections
from stoker.page.access.connections import Connections
from tests.client.service import Broken, Service

CUT = httpx2.ReadError("the token has ended")
END = 'event: end\ndata: {"id": "j", "status": "COMPLETED"}\n\n'


def one_chunk(number: int) -> httpx2.Response:
    text = f'event: chunk\nid: 1-{number}\ndata: {{"output": {number}}}\n\n'
    return httpx2.Response(200, stream=Broken(text, error=CUT))


async def test_what_is_followed_is_resumed_with_the_token_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Renewed twice: neither a 401 for a token that has ended, nor a client that was closed below it."""
    service = Service(one_chunk(0), one_chunk(1), httpx2.Response(200, stream=Broken(END)))
    made = partial(AsyncClient, transport=httpx2.MockTransport(service), sleep=service.sleep_async)
    monkeypatch.setattr(connections, "AsyncClient", made)
    kept = Connections("https://stoker")
    client = kept.of("first").client
    async with aclosing(client.events("echo", "j")) as events:
        for until, token in enumerate(("second", "third")):
            assert (await anext(events)).kind == "chunk"
            kept.renew("first", token, float(until))
        assert (await anext(events)).kind == "end"
    sent = [request.headers["Authorization"] for request in service.requests]
    assert sent == ["Bearer first", "Bearer second", "Bearer third"]
    assert (kept.of("first").client, kept.of("first").until) == (client, 1.0)
    await kept.close()
