"""A scripted service, and both clients in front of it: each test runs once with each of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

from stoker.client import AsyncClient, Client


class Broken(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that comes piece by piece, and then ends with an error, if one is given."""

    def __init__(self, *chunks: str, error: Exception | None = None) -> None:
        self.chunks, self.error = chunks, error
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            yield chunk.encode()
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class Service:
    """Answers each call with the next scripted response, keeps the requests and how long the client slept.

    Its clock moves by what is slept, and by `takes` seconds at each request.
    """

    def __init__(self, *answers: httpx2.Response | Exception, takes: float = 0.0) -> None:
        self.requests: list[httpx2.Request] = []
        self.slept: list[float] = []
        self.now = 0.0
        self.takes = takes
        self._answers = list(answers)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        self.now += self.takes
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def request_lines(self) -> list[str]:
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)

    def clock(self) -> float:
        return self.now

    def all_used(self) -> bool:
        return not self._answers


class Awaiting:
    """AsyncClient with the face of Client: what it returns is awaited, what it gives is gathered."""

    def __init__(self, url: str, key: str, service: Service, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = AsyncClient(
            url,
            key,
            transport=httpx2.MockTransport(service),
            sleep=service.sleep_async,
            clock=service.clock,
            **settings,
        )

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **options: Any) -> Any:
            made = method(*args, **options)
            if inspect.isasyncgen(made):
                return self._each(made)
            return self._loop.run_until_complete(made)

        return call

    def _each(self, made: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._loop.run_until_complete(anext(made))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run_until_complete(made.aclose())

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


def waiting(url: str, key: str, service: Service, **settings: Any) -> Client:
    transport = httpx2.MockTransport(service)
    return Client(url, key, transport=transport, sleep=service.sleep, clock=service.clock, **settings)


def ok(body: object) -> httpx2.Response:
    return httpx2.Response(200, json=body)


def refused(status: int, error: str, **headers: str) -> httpx2.Response:
    return httpx2.Response(
        status,
        json={"error": error},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
