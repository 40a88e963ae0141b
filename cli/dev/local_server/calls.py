"""Calls of live endpoints, with what happens on the worker printed as it happens.

queue          a job: its states, the lines that it prints, progress and partial output, then its end
load-balanced  a request to the worker, then the lines that the route printed; of a route that yields, the
               parts of the response as they come
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from stoker.cli.dev.live_endpoints.provisioning import Provisioning
from stoker.cli.dev.local_server.display import Display
from stoker.cli.dev.project import AppEndpoint
from stoker.cli.jobs import text as job_text
from stoker.cli.jobs.watch import watch
from stoker.client import AsyncClient, ClientError, Event, JobRecord, NotFound, Unreachable
from stoker.client.apps.requests import (
    IN_PARTS,
    RouteResponse,
    function_request,
    route_part,
    route_request,
    route_response,
)
from stoker.client.apps.resources import LIVE_PREFIX

LAST_LINES_S = 2.0
"""How long lines are waited for after the end of a job."""

LONG_S = 2.0
"""After a request has waited for this time, the states of the workers are shown."""

ROUTE_S = 345.0
"""A little longer than the platform waits for a worker and its response."""

ERROR_MAX = 10_000
"""Characters of the error of a route that are shown."""

UNINSTALLED = "could not be installed"
"""In the first line of the error of a function whose dependencies could not be installed."""


class BrokenOff(Exception):
    """A response that has begun, and has no end."""


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """The response of a route that yields. `close` ends the route, unless that has ended."""

    head: RouteResponse
    parts: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]


class Calls:
    """The calls that the local server passes on. `http` sends requests to load-balanced endpoints, with the
    key."""

    def __init__(
        self, stoker: AsyncClient, http: httpx2.AsyncClient, provisioning: Provisioning, display: Display
    ) -> None:
        self._stoker, self._http = stoker, http
        self._provisioning, self._display = provisioning, display

    async def call(self, served: AppEndpoint, qualname: str, kwargs: Mapping[str, Any]) -> JobRecord:
        """Runs the function on a worker, and returns the record of the job's end. Raises ClientError, and
        ValueRefused. If it is cancelled, so is the job."""
        name = LIVE_PREFIX + served.name
        endpoint = await self._provisioning.ensure(served)
        request = await self._request(served, endpoint, qualname, kwargs)
        try:
            job = (await self._stoker.run(endpoint, request)).id
        except NotFound:  # it was deleted since it was last used
            self._provisioning.forget(served, endpoint)
            endpoint = await self._provisioning.ensure(served)
            job = (await self._stoker.run(endpoint, request)).id
        try:
            record = await self._watch(name, endpoint, job)
        except asyncio.CancelledError:
            with suppress(ClientError):
                await self._stoker.cancel(endpoint, job)
            self._display.line(name, f"job {job} is cancelled: its caller left", "yellow")
            raise
        self._show_end(name, record)
        return record

    async def _request(
        self, served: AppEndpoint, endpoint: str, qualname: str, kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Builds the request in a thread, where large values and code are uploaded."""
        loop = asyncio.get_running_loop()

        def upload(data: bytes, name: str) -> str:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, name)
                path.write_bytes(data)
                return asyncio.run_coroutine_threadsafe(self._stoker.upload(endpoint, path), loop).result()

        return await asyncio.to_thread(
            function_request, served.endpoint, qualname, kwargs, served.code, served.definition, upload=upload
        )

    async def _watch(self, name: str, endpoint: str, job: str) -> JobRecord:
        printed = ""

        def on_state(record: JobRecord) -> None:
            nonlocal printed
            text = job_text.state(record)
            if text != printed and record.status == "IN_QUEUE":
                self._display.line(name, text, "dim")
            printed = text

        def on_event(event: Event) -> None:
            value = job_text.output_of(event)
            if event.kind == "reset":
                self._display.line(name, job_text.happened(event), "yellow")
            elif not (isinstance(value, dict) and value.get("phase") == "installing"):  # a line, too
                self._display.value(name, event.kind, value)

        lines = asyncio.create_task(self._print_lines(name, endpoint, job), name=f"lines of {job}")
        try:
            record = await watch(self._stoker, endpoint, job, on_state, on_event)
            await asyncio.wait([lines], timeout=LAST_LINES_S)
            return record
        finally:
            lines.cancel()
            await asyncio.wait([lines])

    async def _print_lines(self, name: str, endpoint: str, job: str) -> None:
        try:
            async with aclosing(self._stoker.logs(endpoint, job, follow=True)) as events:
                async for event in events:
                    self._display.printed(name, event)
        except ClientError as error:
            self._display.line(name, f"its lines cannot be followed: {error}", "yellow")

    def _show_end(self, name: str, record: JobRecord) -> None:
        if record.succeeded:
            self._provisioning.states[name] = "ready"
            self._display.line(name, f"done in {(record.execution_time or 0) / 1000:.2f} s", "green")
            return
        error = (record.error or record.reason or "no reason was given").rstrip()
        self._note_failure(name, error)
        self._display.line(name, f"{record.status}: {error}", "red")

    def _note_failure(self, name: str, error: str) -> None:
        first = error.partition("\n")[0]
        if UNINSTALLED in first:
            self._provisioning.states[name] = f"failed: {first}"

    async def request(
        self,
        served: AppEndpoint,
        *,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> RouteResponse | StreamedResponse:
        """Sends the request to a worker, and returns what its route answered, or its parts. Raises
        ClientError."""
        name = LIVE_PREFIX + served.name
        endpoint = await self._provisioning.ensure(served)
        request = route_request(
            served.endpoint,
            served.code,
            served.definition,
            method=method,
            path=path,
            query=query,
            headers=headers,
            body=body,
        )
        response = await self._execute_printing(name, endpoint, request)
        if response.status_code == 404:  # it was deleted since it was last used
            await response.aclose()
            self._provisioning.forget(served, endpoint)
            endpoint = await self._provisioning.ensure(served)
            response = await self._execute_printing(name, endpoint, request)
        try:
            return await self._answer(name, f"{method} {path}", response)
        except BaseException:
            await response.aclose()
            raise

    async def _answer(
        self, name: str, asked: str, response: httpx2.Response
    ) -> RouteResponse | StreamedResponse:
        if response.status_code == 200 and response.headers.get("content-type") == IN_PARTS:
            lines = response.aiter_lines()
            head = route_response(json.loads(await anext(lines)))
            self._show_lines(name, head.lines)
            return StreamedResponse(head, self._parts(name, asked, lines), response.aclose)
        await response.aread()
        if response.status_code != 200:
            raise ClientError(f"{name} answered {response.status_code}: {_why(response.content)}")
        answer = route_response(response.json())
        self._show_lines(name, answer.lines)
        self._show_answer(name, f"{asked}: {answer.status}", answer)
        return answer

    async def _parts(self, name: str, asked: str, lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
        """Yields the parts of a response. Raises BrokenOff if it has no end."""
        why = "the worker or the platform has closed the connection"
        try:
            async for line in lines:
                part = route_part(json.loads(line))
                self._show_lines(name, part.lines)
                if part.ends and not part.error:
                    self._show_answer(name, f"{asked}: ended", RouteResponse(200))
                    return
                if part.ends:
                    why = part.error[:ERROR_MAX].rstrip()
                    break
                yield part.body
        except httpx2.HTTPError as error:
            why = str(error) or why
        self._display.line(name, f"{asked}: broken off: {why}", "red")
        raise BrokenOff

    def _show_lines(self, name: str, lines: Iterable[str]) -> None:
        for line in lines:
            self._display.line(name, line)

    def _show_answer(self, name: str, text: str, answer: RouteResponse) -> None:
        if answer.status < 400:
            self._provisioning.states[name] = "ready"
            self._display.line(name, text, "green")
            return
        error = _why(answer.body).rstrip()
        self._note_failure(name, error)
        self._display.line(name, f"{text} {error}", "red")

    async def _execute_printing(
        self, name: str, endpoint: str, request: Mapping[str, Any]
    ) -> httpx2.Response:
        """Shows what its workers do while the response takes long."""
        waiting = asyncio.create_task(self._show_workers(name, endpoint), name=f"workers of {name}")
        try:
            return await self._execute(endpoint, request)
        finally:
            waiting.cancel()
            await asyncio.wait([waiting])

    async def _show_workers(self, name: str, endpoint: str) -> None:
        printed = ""
        while True:
            await asyncio.sleep(LONG_S)
            try:
                found = await self._stoker.manage.endpoints.get(endpoint, includeWorkers=True)
            except ClientError:
                return  # the request fails, too
            states = (f"{one['status']} {one.get('reason', '')}".strip() for one in found["workers"])
            text = f"waits; workers: {', '.join(states) or 'none yet'}"
            if text != printed:
                self._display.line(name, text, "dim")
            printed = text

    async def _execute(self, endpoint: str, request: Mapping[str, Any]) -> httpx2.Response:
        try:
            asked = self._http.build_request("POST", f"v2/{endpoint}/execute", json=request, timeout=ROUTE_S)
            return await self._http.send(asked, stream=True)
        except httpx2.TransportError as error:
            raise Unreachable(
                f"no answer from {self._http.base_url}: {error or type(error).__name__}"
            ) from None


def _why(body: bytes) -> str:
    """Returns the error that a response has."""
    try:
        content = json.loads(body)
    except ValueError:
        content = body.decode("utf-8", "replace")
    if isinstance(content, dict):
        content = content.get("detail") or content.get("error") or content
    return str(content)[:ERROR_MAX]
