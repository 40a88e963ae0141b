"""An application that its first request makes."""

from __future__ import annotations

import asyncio
import threading

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker.control.http.server.lazily import Lazily


class Maker:
    """A maker of an application that counts requests. Its first `failures` attempts fail."""

    def __init__(self, failures: int = 0) -> None:
        self.threads: list[int] = []
        self.requests = 0
        self._failures = failures

    def __call__(self) -> ASGIApp:
        self.threads.append(threading.get_ident())
        if len(self.threads) <= self._failures:
            raise ValueError("not yet")
        return self._serve

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests += 1


async def ask(app: Lazily) -> None:
    async def nothing(*_: object) -> None: ...

    await app({"type": "http"}, nothing, nothing)  # type: ignore[arg-type]


async def test_it_is_made_once_in_a_thread_for_the_first_of_many() -> None:
    maker = Maker()
    app = Lazily(maker)
    assert maker.threads == []
    await asyncio.gather(*(ask(app) for _ in range(5)))
    await ask(app)
    assert (len(maker.threads), maker.requests) == (1, 6)
    assert maker.threads != [threading.get_ident()]


async def test_what_could_not_be_made_is_tried_again() -> None:
    maker = Maker(failures=1)
    app = Lazily(maker)
    with pytest.raises(ValueError, match="not yet"):
        await ask(app)
    await ask(app)
    assert maker.requests == 1
