"""The API client: the invocation calls of one service, over one pool of connections.

    with Client("http://127.0.0.1:8000", key) as stoker:
        job = stoker.run("text-to-image", {"prompt": "a lighthouse"})
        for output in stoker.stream("text-to-image", job.id):
            ...
        print(stoker.wait("text-to-image", job.id).output["image_url"])

It does not retry a submission: whether a second one is wanted, only the caller knows. Errors: `errors`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from stoker.client.errors import BY_STATUS, ApiError, ClientError, JobFailed, Unreachable
from stoker.client.records import Event, Health, JobRecord
from stoker.client.sse import read_events

WAIT_MS = 90_000
"""How long one held call asks the service to wait; more than one is made when that is not enough."""

_SLACK_S = 15.0
"""An answer to a held call may take this much longer than the wait that was asked for."""


class Client:
    """`base_url` is the service's address without `/v2`; `api_key` goes out as a bearer token."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        timeout_s: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._http = httpx.Client(
            base_url=base_url.rstrip("/").removesuffix("/v2") + "/v2/",
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=timeout_s,
            transport=transport,
            trust_env=False,
        )

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
        *,
        webhook: str | None = None,
        policy: Mapping[str, Any] | None = None,
        s3_config: Mapping[str, str] | None = None,
    ) -> JobRecord:
        """Queues a job and returns at once."""
        body = _submission(input, webhook, policy, s3_config)
        return JobRecord.read(self._call("POST", f"{endpoint}/run", json=body))

    def runsync(
        self,
        endpoint: str,
        input: Mapping[str, Any],  # noqa: A002
        *,
        wait_ms: int | None = None,
        webhook: str | None = None,
        policy: Mapping[str, Any] | None = None,
        s3_config: Mapping[str, str] | None = None,
    ) -> JobRecord:
        """Queues a job and waits for its end, or for `wait_ms`; then the record is not `ended` yet."""
        body = _submission(input, webhook, policy, s3_config)
        params = {} if wait_ms is None else {"wait": wait_ms}
        held_s = (300_000 if wait_ms is None else wait_ms) / 1000 + _SLACK_S
        return JobRecord.read(
            self._call("POST", f"{endpoint}/runsync", json=body, params=params, timeout=held_s)
        )

    def status(self, endpoint: str, job: str) -> JobRecord:
        return JobRecord.read(self._call("GET", f"{endpoint}/status/{job}"))

    def wait(self, endpoint: str, job: str) -> JobRecord:
        """Returns the record of a job that COMPLETED; raises JobFailed when it ended otherwise."""
        while True:
            record = JobRecord.read(
                self._call(
                    "GET",
                    f"{endpoint}/status-sync/{job}",
                    params={"wait": WAIT_MS},
                    timeout=WAIT_MS / 1000 + _SLACK_S,
                )
            )
            if record.succeeded:
                return record
            if record.ended:
                raise JobFailed(record)

    def cancel(self, endpoint: str, job: str) -> JobRecord:
        return JobRecord.read(self._call("POST", f"{endpoint}/cancel/{job}"))

    def health(self, endpoint: str) -> Health:
        body = self._call("GET", f"{endpoint}/health")
        return Health(jobs=body["jobs"], workers=body["workers"])

    def stream(self, endpoint: str, job: str, *, wait_ms: int = 10_000) -> Iterator[Any]:
        """What the job gave so far and gives from now on, by polling, until it has ended."""
        while True:
            body = self._call(
                "GET",
                f"{endpoint}/stream/{job}",
                params={"wait": wait_ms},
                timeout=wait_ms / 1000 + _SLACK_S,
            )
            for chunk in body["stream"]:
                yield chunk["output"]
            if JobRecord.read({"id": job, **body}).ended:
                return

    def events(self, endpoint: str, job: str, *, after: str | None = None) -> Iterator[Event]:
        """The job's events as they happen, the last one being `end`; `after` is the last id that was seen."""
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = after
        path = f"{endpoint}/stream/{job}"
        timeout = httpx.Timeout(self._timeout_s, read=None)
        try:
            with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                    raise _error(response)
                for raw in read_events(response.iter_lines()):
                    yield Event(raw.kind, raw.id, _json(raw.data))
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, int] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        try:
            response = self._http.request(
                method, path, json=json, params=params, timeout=timeout or self._timeout_s
            )
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if response.status_code != 200:
            raise _error(response)
        body = _json(response.text)
        if not isinstance(body, dict):
            raise ClientError(f"{method} {path} answered {type(body).__name__} where an object was expected")
        return body

    def _unreachable(self, error: httpx.TransportError) -> Unreachable:
        address = str(self._http.base_url).removesuffix("/v2/")
        return Unreachable(f"no answer from {address}: {error or type(error).__name__}")


def _submission(
    given: Mapping[str, Any],
    webhook: str | None,
    policy: Mapping[str, Any] | None,
    s3_config: Mapping[str, str] | None,
) -> dict[str, Any]:
    optional = {"webhook": webhook, "policy": policy, "s3Config": s3_config}
    return {"input": given, **{name: value for name, value in optional.items() if value is not None}}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ClientError(f"the answer is not JSON: {text[:200]!r}") from None


def _error(response: httpx.Response) -> ApiError:
    try:
        body = response.json()
    except ValueError:
        body = response.text
    message = body.get("error") or body.get("detail") if isinstance(body, dict) else None
    retry_after = response.headers.get("Retry-After", "")
    return BY_STATUS.get(response.status_code, ApiError)(
        str(message or f"the service answered {response.status_code} {response.reason_phrase}"),
        status=response.status_code,
        body=body,
        retry_after=float(retry_after) if retry_after.isdigit() else None,
    )


__all__ = ["Client"]
