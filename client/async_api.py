"""The API client for asyncio: the methods of `api.Client`, to be awaited, which documents them.

    async with AsyncClient("http://127.0.0.1:8000", key) as stoker:
        job = await stoker.run("text-to-image", {"prompt": "a lighthouse"})
        async for event in stoker.events("text-to-image", job.id):
            ...

An iterator that is left before its end keeps its connection open: close it with `contextlib.aclosing`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import httpx2

from stoker.client import calls, httpx2_adapter, retries
from stoker.client.calls import Call, Options, Search
from stoker.client.errors import ApiError, ClientError
from stoker.client.following import Following
from stoker.client.management import Management
from stoker.client.records import AttemptLog, Event, Health, JobAttempts, JobPage, JobRecord, WorkerLog
from stoker.client.retries import Pause, Steps

T = TypeVar("T")


class AsyncClient:
    """A client whose methods are awaited: those of `Client`, with the same arguments and errors; and
    `use_key`, for keys that end while the client goes on. Close it after use, or use it as an asynchronous
    context manager."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 10.0,
        resends: int = 3,
        ca_file: Path | str | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = httpx2_adapter.service(base_url, api_key, timeout_s, ca_file).open_async(transport)
        self._resends = resends
        self._sleep = sleep
        self._clock = clock
        self.manage = Management(self._call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    def use_key(self, api_key: str) -> None:
        """Sends this key from the next request on. Streams that are open go on, and are resumed with it where
        they break. Raises ClientError for a key that no header can hold."""
        self._http.headers.update(httpx2_adapter.bearer(api_key))

    async def run(
        self,
        endpoint: str,
        input: Mapping[str, Any],  # noqa: A002
        **options: Unpack[Options],
    ) -> JobRecord:
        return await self._call(calls.run(endpoint, input, options))

    async def runsync(
        self,
        endpoint: str,
        input: Mapping[str, Any],  # noqa: A002
        *,
        wait_ms: int | None = None,
        **options: Unpack[Options],
    ) -> JobRecord:
        return await self._call(calls.runsync(endpoint, input, wait_ms, options))

    async def status(self, endpoint: str, job: str, *, ttl_ms: int | None = None) -> JobRecord:
        return await self._call(calls.status(endpoint, job, ttl_ms))

    async def wait(self, endpoint: str, job: str, *, timeout_s: float | None = None) -> JobRecord:
        return await self._carry_out(retries.wait(endpoint, job, timeout_s, self._clock, self._resends))

    async def cancel(self, endpoint: str, job: str) -> JobRecord:
        return await self._call(calls.cancel(endpoint, job))

    async def retry(self, endpoint: str, job: str) -> JobRecord:
        return await self._call(calls.retry(endpoint, job))

    async def purge_queue(self, endpoint: str) -> int:
        return await self._call(calls.purge_queue(endpoint))

    async def requests(
        self,
        endpoint: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **search: Unpack[Search],
    ) -> JobPage:
        return await self._call(calls.requests(endpoint, limit, cursor, search))

    async def all_requests(
        self, endpoint: str, *, page: int | None = None, **search: Unpack[Search]
    ) -> AsyncGenerator[JobRecord, None]:
        cursor = None
        while True:
            found = await self._call(calls.requests(endpoint, page, cursor, search))
            for job in found.jobs:
                yield job
            cursor = found.cursor
            if cursor is None:
                return

    def attempts(self, endpoint: str, job: str) -> Awaitable[JobAttempts]:
        return self._call(calls.attempts(endpoint, job))

    def job_input(self, endpoint: str, job: str) -> Awaitable[Any]:
        return self._call(calls.job_input(endpoint, job))

    def case(self, endpoint: str, job: str) -> Awaitable[dict[str, Any]]:
        return self._call(calls.case(endpoint, job))

    def replay(
        self, endpoint: str, job: str, node: str, **options: Unpack[calls.Replaying]
    ) -> Awaitable[dict[str, Any]]:
        return self._call(calls.replay(endpoint, job, node, options))

    @overload
    def logs(
        self, endpoint: str, job: str, *, follow: Literal[False] = False
    ) -> Awaitable[tuple[AttemptLog, ...]]: ...

    @overload
    def logs(
        self, endpoint: str, job: str, *, follow: Literal[True], after: str | None = None
    ) -> AsyncGenerator[Event, None]: ...

    def logs(
        self, endpoint: str, job: str, *, follow: bool = False, after: str | None = None
    ) -> Awaitable[tuple[AttemptLog, ...]] | AsyncGenerator[Event, None]:
        """Returns an awaitable; with `follow`, an asynchronous iterator."""
        if follow:
            return self._follow(Following(endpoint, job, after, self._resends, calls.log_events))
        return self._call(calls.logs(endpoint, job))

    @overload
    def worker_log(
        self, endpoint: str, worker: str, *, follow: Literal[False] = False
    ) -> Awaitable[WorkerLog]: ...

    @overload
    def worker_log(
        self, endpoint: str, worker: str, *, follow: Literal[True], after: str | None = None
    ) -> AsyncGenerator[Event, None]: ...

    def worker_log(
        self, endpoint: str, worker: str, *, follow: bool = False, after: str | None = None
    ) -> Awaitable[WorkerLog] | AsyncGenerator[Event, None]:
        """Returns an awaitable; with `follow`, an asynchronous iterator."""
        if follow:
            return self._follow(Following(endpoint, worker, after, self._resends, calls.worker_log_events))
        return self._call(calls.worker_log(endpoint, worker))

    def pod_log(self, pod: str, *, after: str | None = None) -> AsyncGenerator[Event, None]:
        return self._follow(Following("pods", pod, after, self._resends, calls.pod_log_events))

    async def upload(self, endpoint: str, path: Path, media_type: str = "application/octet-stream") -> str:
        data = await asyncio.to_thread(path.read_bytes)
        return await self._call(calls.upload(endpoint, path.name, data, media_type))

    async def health(self, endpoint: str) -> Health:
        return await self._call(calls.health(endpoint))

    async def input_schemas(self) -> Mapping[str, Mapping[str, Any]]:
        return await self._call(calls.input_schemas())

    async def stream(self, endpoint: str, job: str, *, wait_ms: int = 8_000) -> AsyncGenerator[Any, None]:
        while True:
            poll = await self._call(calls.poll(endpoint, job, wait_ms))
            for output in poll.outputs:
                yield output
            if poll.ended:
                return

    async def events(
        self, endpoint: str, job: str, *, after: str | None = None
    ) -> AsyncGenerator[Event, None]:
        async with aclosing(self._follow(Following(endpoint, job, after, self._resends))) as followed:
            async for event in followed:
                yield event

    async def _follow(self, following: Following) -> AsyncGenerator[Event, None]:
        while not following.done:
            broke: ClientError | None = None
            request = httpx2_adapter.events_request(self._http, following.call())
            try:
                async with aclosing(self._listen(request, following)) as events:
                    async for event in events:
                        yield event
            except httpx2.TransportError as error:
                broke = httpx2_adapter.failure(request, error)
            except ApiError as error:
                broke = error
            if not following.done:
                await self._sleep(following.broken(broke, self._clock()).seconds)

    async def _listen(self, request: httpx2.Request, following: Following) -> AsyncGenerator[Event, None]:
        response = await self._http.send(request, stream=True)
        try:
            if response.status_code != 200:
                await response.aread()
                raise calls.refusal(httpx2_adapter.reply(response))
            following.opened(self._clock())
            async for data in response.aiter_bytes():
                for event in following.feed(data):
                    yield event
        finally:
            await response.aclose()

    async def _call(self, call: Call[T]) -> T:
        return await self._carry_out(retries.send(call, self._resends))

    async def _carry_out(self, steps_: Steps[T]) -> T:
        try:
            step = next(steps_)
            while True:
                if isinstance(step, Pause):
                    await self._sleep(step.seconds)
                    step = next(steps_)
                    continue
                request = httpx2_adapter.request(self._http, step)
                try:
                    reply = httpx2_adapter.reply(await self._http.send(request))
                except httpx2.TransportError as error:
                    step = steps_.throw(httpx2_adapter.failure(request, error))
                else:
                    step = steps_.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


__all__ = ["AsyncClient"]
