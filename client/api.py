"""The API client: every operation of an endpoint, and `manage`, over one pool of connections.

    with Client("http://127.0.0.1:8000", key) as stoker:
        job = stoker.run("text-to-image", {"prompt": "a lighthouse"})
        for event in stoker.events("text-to-image", job.id):
            ...
        print(stoker.wait("text-to-image", job.id).output["image_url"])

What is safe to send twice is sent again, at most `resends` times, when the connection broke or the service
asked to come back (429 and 503 with Retry-After): reads, cancels, and submissions, since each carries an
idempotency key and makes one job however often it arrives. `retry`, `purge_queue` and a poll of `stream` are
sent once. Errors: `errors`. The same for asyncio: `async_api`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import httpx

from stoker.client import calls, http_words, steps
from stoker.client.calls import Call, Options
from stoker.client.errors import ApiError, ClientError
from stoker.client.following import Following
from stoker.client.management import Management
from stoker.client.records import AttemptLog, Event, Health, JobPage, JobRecord
from stoker.client.steps import Pause, Steps

T = TypeVar("T")


class Client:
    """`base_url` is the service's address without `/v2`; `api_key` goes out as a bearer token."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        timeout_s: float = 10.0,
        resends: int = 3,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = httpx.Client(**http_words.settings(base_url, api_key, timeout_s), transport=transport)
        self._resends = resends
        self._sleep = sleep or time.sleep
        self._clock = clock
        self.manage = Management(self._ask)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def run(
        self,
        endpoint: str,
        input: Mapping[str, Any],  # noqa: A002  the interface's own word
        **options: Unpack[Options],
    ) -> JobRecord:
        """Queues a job and returns at once.

        Without an `idempotency_key` the call draws one, so that its own resend after a broken connection
        makes no second job. Give one of your own to make a second call of yours as safe, for 24 hours.
        """
        return self._ask(calls.run(endpoint, input, options))

    def runsync(
        self,
        endpoint: str,
        input: Mapping[str, Any],  # noqa: A002
        *,
        wait_ms: int | None = None,
        **options: Unpack[Options],
    ) -> JobRecord:
        """Queues a job and waits for its end, or for `wait_ms`; then the record is not `ended` yet.

        Is sent again as `run` is, and then waits for the job of the first time.
        """
        return self._ask(calls.runsync(endpoint, input, wait_ms, options))

    def status(self, endpoint: str, job: str, *, ttl_ms: int | None = None) -> JobRecord:
        """`ttl_ms` shortens the life of the record, and of the job, to so long from now."""
        return self._ask(calls.status(endpoint, job, ttl_ms))

    def wait(self, endpoint: str, job: str, *, timeout_s: float | None = None) -> JobRecord:
        """The record, once the job COMPLETED; JobFailed if it ended otherwise, NotEnded after `timeout_s`."""
        return self._carry_out(steps.wait(endpoint, job, timeout_s, self._clock, self._resends))

    def cancel(self, endpoint: str, job: str) -> JobRecord:
        """Stops the job; the record of one that had ended comes back unchanged."""
        return self._ask(calls.cancel(endpoint, job))

    def retry(self, endpoint: str, job: str) -> JobRecord:
        """Queues a job that FAILED or TIMED_OUT once more, with the same id and input."""
        return self._ask(calls.retry(endpoint, job))

    def purge_queue(self, endpoint: str) -> int:
        """Cancels every job of the endpoint that waits, and says how many."""
        return self._ask(calls.purge_queue(endpoint))

    def requests(
        self,
        endpoint: str,
        *,
        status: str | None = None,
        since: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JobPage:
        """One page of the endpoint's jobs, newest first; `since` is in milliseconds since the epoch.

        A page may hold fewer than `limit`, and none, and still have a next one.
        """
        return self._ask(calls.requests(endpoint, status, since, limit, cursor))

    def all_requests(
        self, endpoint: str, *, status: str | None = None, since: int | None = None, page: int | None = None
    ) -> Iterator[JobRecord]:
        """Every job of the endpoint, newest first, asked for page by page."""
        cursor = None
        while True:
            found = self._ask(calls.requests(endpoint, status, since, page, cursor))
            yield from found.jobs
            cursor = found.cursor
            if cursor is None:
                return

    @overload
    def logs(self, endpoint: str, job: str, *, follow: Literal[False] = False) -> tuple[AttemptLog, ...]: ...

    @overload
    def logs(
        self, endpoint: str, job: str, *, follow: Literal[True], after: str | None = None
    ) -> Iterator[Event]: ...

    def logs(
        self, endpoint: str, job: str, *, follow: bool = False, after: str | None = None
    ) -> tuple[AttemptLog, ...] | Iterator[Event]:
        """The last lines that the handler wrote, attempt by attempt.

        With `follow`: events as `events` gives them, of the kinds log (`{"line"}`), skipped (`{"lines"}` that
        are gone), reset (`{"attempt"}` begins) and end (`{"id", "status"}`): what is kept first, then each
        line as it is printed. `after` is the last id that was seen.
        """
        if follow:
            return self._follow(Following(endpoint, job, after, self._resends, calls.log_events))
        return self._ask(calls.logs(endpoint, job))

    def upload(self, endpoint: str, path: Path, media_type: str = "application/octet-stream") -> str:
        """Brings a file along: a URL that an input may name for a day."""
        return self._ask(calls.upload(endpoint, path.name, path.read_bytes(), media_type))

    def health(self, endpoint: str) -> Health:
        return self._ask(calls.health(endpoint))

    def stream(self, endpoint: str, job: str, *, wait_ms: int = 8_000) -> Iterator[Any]:
        """What the job gave so far and gives from now on, by polling, until it has ended.

        All pollers of a job share one place in its stream. `events` has none of that, and resumes.
        """
        while True:
            poll = self._ask(calls.poll(endpoint, job, wait_ms))
            yield from poll.outputs
            if poll.ended:
                return

    def events(self, endpoint: str, job: str, *, after: str | None = None) -> Iterator[Event]:
        """The job's events as they happen, the last one being `end`; `after` is the last id that was seen.

        A connection that breaks is made anew where it broke, with growing pauses; nothing is given twice.
        """
        return self._follow(Following(endpoint, job, after, self._resends))

    def _follow(self, following: Following) -> Iterator[Event]:
        while not following.done:
            broke: ClientError | None = None
            request = http_words.events_request(self._http, following.call())
            try:
                yield from self._listen(request, following)
            except httpx.TransportError as error:
                broke = http_words.failure(request, error)
            except ApiError as error:
                broke = error
            if not following.done:
                self._sleep(following.broken(broke, self._clock()).seconds)

    def _listen(self, request: httpx.Request, following: Following) -> Iterator[Event]:
        response = self._http.send(request, stream=True)
        try:
            if response.status_code != 200:
                response.read()
                raise calls.refusal(http_words.reply(response))
            following.opened(self._clock())
            for data in response.iter_bytes():
                yield from following.hear(data)
        finally:
            response.close()

    def _ask(self, call: Call[T]) -> T:
        return self._carry_out(steps.ask(call, self._resends))

    def _carry_out(self, conversation: Steps[T]) -> T:
        try:
            step = next(conversation)
            while True:
                if isinstance(step, Pause):
                    self._sleep(step.seconds)
                    step = next(conversation)
                    continue
                request = http_words.request(self._http, step)
                try:
                    reply = http_words.reply(self._http.send(request))
                except httpx.TransportError as error:
                    step = conversation.throw(http_words.failure(request, error))
                else:
                    step = conversation.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


__all__ = ["Client"]
