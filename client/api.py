"""The API client: every operation of an endpoint, and the management API as `manage`, on one connection pool.

    with Client("http://127.0.0.1:8000", key) as stoker:
        job = stoker.run("text-to-image", {"prompt": "a lighthouse"})
        for event in stoker.events("text-to-image", job.id):
            ...
        print(stoker.wait("text-to-image", job.id).output["image_url"])

Calls that are safe to repeat are sent again, at most `resends` times, if the connection broke or the service
refused them for a time (429 and 503 with Retry-After). These are reads, cancels and submissions: each
submission has an idempotency key and makes one job however often it arrives. `retry`, `purge_queue` and a
poll of `stream` are sent once. Errors are in `errors`, and the client for asyncio is in `async_api`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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


class Client:
    """The client of one service. `base_url` is the service's address without `/v2`; several with commas are
    those of a control and its standbys, of which the one that can be reached is called. `api_key` is sent as
    a bearer token; the warning `KeyInTheClear` says that others can read the key. The defaults are STOKER_URL
    and STOKER_API_KEY from the environment, else from `.env` in the current folder; the last default of the
    address is that of `stoker up`. `ca_file` is a PEM file of an authority to trust in addition to the public
    ones."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 10.0,
        resends: int = 3,
        ca_file: Path | str | None = None,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = httpx2_adapter.service(base_url, api_key, timeout_s, ca_file).open(transport)
        self._resends = resends
        self._sleep = sleep or time.sleep
        self._clock = clock
        self.manage = Management(self._call)

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
        input: Mapping[str, Any],  # noqa: A002  the API's own name
        **options: Unpack[Options],
    ) -> JobRecord:
        """Queues a job and returns at once.

        Without an `idempotency_key` the call draws one, so that a resend after a broken connection makes no
        second job. With a key of your own, your repeated calls make one job too, for 24 hours.
        """
        return self._call(calls.run(endpoint, input, options))

    def runsync(
        self,
        endpoint: str,
        input: Mapping[str, Any],  # noqa: A002
        *,
        wait_ms: int | None = None,
        **options: Unpack[Options],
    ) -> JobRecord:
        """Queues a job and waits until it has ended, or for `wait_ms`; then the record has not `ended`.

        A resend, as of `run`, waits for the job of the first call.
        """
        return self._call(calls.runsync(endpoint, input, wait_ms, options))

    def status(self, endpoint: str, job: str, *, ttl_ms: int | None = None) -> JobRecord:
        """Returns the job's record. `ttl_ms` shortens the life of the job and its record to this time from
        now."""
        return self._call(calls.status(endpoint, job, ttl_ms))

    def wait(self, endpoint: str, job: str, *, timeout_s: float | None = None) -> JobRecord:
        """Waits until the job has ended and returns the record of a job that has COMPLETED. Raises JobFailed
        if the job ended otherwise, NotEnded after `timeout_s`."""
        return self._carry_out(retries.wait(endpoint, job, timeout_s, self._clock, self._resends))

    def cancel(self, endpoint: str, job: str) -> JobRecord:
        """Cancels the job. A job that has ended does not change."""
        return self._call(calls.cancel(endpoint, job))

    def retry(self, endpoint: str, job: str) -> JobRecord:
        """Queues a job that FAILED or TIMED_OUT again, with the same id and input."""
        return self._call(calls.retry(endpoint, job))

    def purge_queue(self, endpoint: str) -> int:
        """Cancels every queued job of the endpoint and returns their number."""
        return self._call(calls.purge_queue(endpoint))

    def requests(
        self,
        endpoint: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **search: Unpack[Search],
    ) -> JobPage:
        """Returns a page of the endpoint's jobs that are looked for, newest first.

        A page may have fewer jobs than `limit`, even none, and still have a next page.
        """
        return self._call(calls.requests(endpoint, limit, cursor, search))

    def all_requests(
        self, endpoint: str, *, page: int | None = None, **search: Unpack[Search]
    ) -> Iterator[JobRecord]:
        """Yields every job of the endpoint that is looked for, newest first. Pages are requested as the
        iteration goes on."""
        cursor = None
        while True:
            found = self._call(calls.requests(endpoint, page, cursor, search))
            yield from found.jobs
            cursor = found.cursor
            if cursor is None:
                return

    def attempts(self, endpoint: str, job: str) -> JobAttempts:
        """Returns the attempts at a job, each with its worker, its node and its moments."""
        return self._call(calls.attempts(endpoint, job))

    def job_input(self, endpoint: str, job: str) -> Any:
        """Returns the input of a job that this key submitted, or that it may read as one with the right
        `cases`. Raises ApiError with status 403 otherwise."""
        return self._call(calls.job_input(endpoint, job))

    def case(self, endpoint: str, job: str) -> dict[str, Any]:
        """Returns the case of a job that failed, as the API describes it: what is needed to run the job again
        elsewhere. Raises NotFound where none was kept."""
        return self._call(calls.case(endpoint, job))

    def replay(
        self, endpoint: str, job: str, node: str, **options: Unpack[calls.Replaying]
    ) -> dict[str, Any]:
        """Runs a job again on a node, given by its id or name, from its case. Returns `id` and
        `endpoint` of the replay, a job of an endpoint that is made for it. Raises NotFound where no case was
        kept, or no node is called so."""
        return self._call(calls.replay(endpoint, job, node, options))

    @overload
    def logs(self, endpoint: str, job: str, *, follow: Literal[False] = False) -> tuple[AttemptLog, ...]: ...

    @overload
    def logs(
        self, endpoint: str, job: str, *, follow: Literal[True], after: str | None = None
    ) -> Iterator[Event]: ...

    def logs(
        self, endpoint: str, job: str, *, follow: bool = False, after: str | None = None
    ) -> tuple[AttemptLog, ...] | Iterator[Event]:
        """Returns the last lines that the handler wrote, for each attempt.

        With `follow`, returns an iterator of events: log (`{"line", "printedAt"}`), skipped (`{"lines"}` were
        lost), reset (`{"attempt"}` begins) and end (`{"id", "status"}`). `printedAt` is in milliseconds since
        the epoch. The iterator begins with the stored lines and goes on with each new line. `after` is the id
        of the last event that was seen.
        """
        if follow:
            return self._follow(Following(endpoint, job, after, self._resends, calls.log_events))
        return self._call(calls.logs(endpoint, job))

    @overload
    def worker_log(self, endpoint: str, worker: str, *, follow: Literal[False] = False) -> WorkerLog: ...

    @overload
    def worker_log(
        self, endpoint: str, worker: str, *, follow: Literal[True], after: str | None = None
    ) -> Iterator[Event]: ...

    def worker_log(
        self, endpoint: str, worker: str, *, follow: bool = False, after: str | None = None
    ) -> WorkerLog | Iterator[Event]:
        """Returns the last lines that a worker of any kind of endpoint printed.

        With `follow`, returns an iterator of events as that of `logs`, until the worker is gone: `end` is
        `{"id"}` then, and there is no reset, as the worker's processes go on in one log.
        """
        if follow:
            return self._follow(Following(endpoint, worker, after, self._resends, calls.worker_log_events))
        return self._call(calls.worker_log(endpoint, worker))

    def pod_log(self, pod: str, *, after: str | None = None) -> Iterator[Event]:
        """Yields the lines that a pod's container printed last, and then those that it prints, as events of
        the kind log: `{"line", "ts"}`, with the time as RFC 3339. Does not end by itself: a pod prints again
        once it was started again."""
        return self._follow(Following("pods", pod, after, self._resends, calls.pod_log_events))

    def upload(self, endpoint: str, path: Path, media_type: str = "application/octet-stream") -> str:
        """Uploads a file and returns a URL for job inputs, valid for 24 hours."""
        return self._call(calls.upload(endpoint, path.name, path.read_bytes(), media_type))

    def health(self, endpoint: str) -> Health:
        return self._call(calls.health(endpoint))

    def input_schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns the JSON Schema of the input of each endpoint that declares one, by the endpoint's id."""
        return self._call(calls.input_schemas())

    def stream(self, endpoint: str, job: str, *, wait_ms: int = 8_000) -> Iterator[Any]:
        """Yields the job's partial outputs, past and new, by polling until the job has ended.

        All pollers of a job share one position in its stream: each output is read once. `events` returns all
        outputs to every reader, and resumes after a break.
        """
        while True:
            poll = self._call(calls.poll(endpoint, job, wait_ms))
            yield from poll.outputs
            if poll.ended:
                return

    def events(self, endpoint: str, job: str, *, after: str | None = None) -> Iterator[Event]:
        """Yields the job's events as they happen; the last one is `end`. `after` is the id of the last event
        seen.

        After a broken connection, the client reconnects with growing pauses and goes on where it broke off;
        it returns no event twice.
        """
        return self._follow(Following(endpoint, job, after, self._resends))

    def _follow(self, following: Following) -> Iterator[Event]:
        while not following.done:
            broke: ClientError | None = None
            request = httpx2_adapter.events_request(self._http, following.call())
            try:
                yield from self._listen(request, following)
            except httpx2.TransportError as error:
                broke = httpx2_adapter.failure(request, error)
            except ApiError as error:
                broke = error
            if not following.done:
                self._sleep(following.broken(broke, self._clock()).seconds)

    def _listen(self, request: httpx2.Request, following: Following) -> Iterator[Event]:
        response = self._http.send(request, stream=True)
        try:
            if response.status_code != 200:
                response.read()
                raise calls.refusal(httpx2_adapter.reply(response))
            following.opened(self._clock())
            for data in response.iter_bytes():
                yield from following.feed(data)
        finally:
            response.close()

    def _call(self, call: Call[T]) -> T:
        return self._carry_out(retries.send(call, self._resends))

    def _carry_out(self, steps_: Steps[T]) -> T:
        try:
            step = next(steps_)
            while True:
                if isinstance(step, Pause):
                    self._sleep(step.seconds)
                    step = next(steps_)
                    continue
                request = httpx2_adapter.request(self._http, step)
                try:
                    reply = httpx2_adapter.reply(self._http.send(request))
                except httpx2.TransportError as error:
                    step = steps_.throw(httpx2_adapter.failure(request, error))
                else:
                    step = steps_.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


__all__ = ["Client"]
