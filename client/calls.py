"""The request of each operation and how to read its response. Pure data, for `Client` and `AsyncClient`.

`idempotent` calls may be sent again if nobody knows whether the first one arrived: reads, cancels, and
submissions with an idempotency key.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote

from stoker.client.errors import BY_STATUS, ApiError, ClientError
from stoker.client.records import (
    Attempt,
    AttemptLog,
    Health,
    JobAttempts,
    JobPage,
    JobRecord,
    Poll,
    WorkerLog,
)

T = TypeVar("T")

HOSTED_WAIT_MS = 300_000
"""The longest that the service holds `/runsync` open if no wait is requested."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request of the API. `path` is relative to `/v2/`, or to `/{under}/`. `body` is sent as JSON,
    `content` as it is. `longest_wait_ms`: how long the service may hold the request open."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: Any = None
    content: bytes | None = None
    params: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    longest_wait_ms: int = 0
    idempotent: bool = False
    under: str = "v2"


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response with its whole body."""

    status: int
    phrase: str
    text: str
    retry_after: str = ""


class Options(TypedDict, total=False):
    """The options of a submission. None is the same as left out.

    `policy`: `executionTimeout`, `ttl`, `startBy` and `deadline` in milliseconds, `priority` ("urgent",
    "normal" or "low"), `lowPriority`. `idempotency_key`: the service makes one job of all submissions with
    the same key; without it, each call draws a key of its own.
    """

    idempotency_key: str | None
    webhook: str | None
    policy: Mapping[str, Any] | None
    s3_config: Mapping[str, str] | None


def run(endpoint: str, input_: Mapping[str, Any], options: Options) -> Call[JobRecord]:
    return Call("POST", _path(endpoint, "run"), JobRecord.read, **_submission(input_, **options))


def runsync(
    endpoint: str, input_: Mapping[str, Any], wait_ms: int | None, options: Options
) -> Call[JobRecord]:
    return Call(
        "POST",
        _path(endpoint, "runsync"),
        JobRecord.read,
        params=_params(wait=wait_ms),
        longest_wait_ms=HOSTED_WAIT_MS if wait_ms is None else wait_ms,
        **_submission(input_, **options),
    )


def status(endpoint: str, job: str, ttl_ms: int | None = None) -> Call[JobRecord]:
    return Call(
        "GET", _path(endpoint, "status", job), JobRecord.read, params=_params(ttl=ttl_ms), idempotent=True
    )


def status_sync(endpoint: str, job: str, wait_ms: int) -> Call[JobRecord]:
    path = _path(endpoint, "status-sync", job)
    return Call(
        "GET", path, JobRecord.read, params={"wait": wait_ms}, longest_wait_ms=wait_ms, idempotent=True
    )


def cancel(endpoint: str, job: str) -> Call[JobRecord]:
    return Call("POST", _path(endpoint, "cancel", job), JobRecord.read, idempotent=True)


def retry(endpoint: str, job: str) -> Call[JobRecord]:
    """Returns a call that is sent once: if the response is lost, a second call fails because the job is no
    longer FAILED."""
    return Call("POST", _path(endpoint, "retry", job), JobRecord.read)


def purge_queue(endpoint: str) -> Call[int]:
    """Returns a call that is sent once: a second call would also cancel jobs that were queued in between."""
    return Call("POST", _path(endpoint, "purge-queue"), lambda body: int(body["removed"]))


class Search(TypedDict, total=False):
    """The jobs that are looked for; None is the same as left out. `since` and `until`: when they were
    submitted, in milliseconds since the epoch. `worker` and `node`: the ids of the last ones that ran them.
    `error`: a text in the error or the reason of those that did not complete; case does not matter."""

    status: str | None
    since: int | None
    until: int | None
    worker: str | None
    node: str | None
    error: str | None


def requests(endpoint: str, limit: int | None, cursor: str | None, search: Search) -> Call[JobPage]:
    params = _params(**search, limit=limit, cursor=cursor)
    return Call("GET", _path(endpoint, "requests"), _page, params=params, idempotent=True)


def logs(endpoint: str, job: str) -> Call[tuple[AttemptLog, ...]]:
    return Call("GET", _path(endpoint, "logs", job), _logs, idempotent=True)


def attempts(endpoint: str, job: str) -> Call[JobAttempts]:
    return Call("GET", _path(endpoint, "attempts", job), _attempts, idempotent=True)


def job_input(endpoint: str, job: str) -> Call[Any]:
    return Call("GET", _path(endpoint, "input", job), lambda body: body["input"], idempotent=True)


def case(endpoint: str, job: str) -> Call[dict[str, Any]]:
    return Call("GET", _path(endpoint, "case", job), _case, idempotent=True)


class Replaying(TypedDict, total=False):
    """The options of a replay. `stop_after`: the handler is stopped after so many reports of progress and
    chunks; 0: it is not. `seed`: put into an input that has none."""

    from_start: bool
    stop_after: int
    seed: int | None


def replay(endpoint: str, job: str, node: str, options: Replaying) -> Call[dict[str, Any]]:
    """Returns a call that is sent once: a second call would start another replay."""
    params = _params(node=node, stopAfter=options.get("stop_after"), seed=options.get("seed"))
    if options.get("from_start"):
        params = {**params, "fromStart": "true"}
    return Call("POST", _path(endpoint, "replay", job), _case, params=params)


def log_events(endpoint: str, job: str, after: str | None) -> Call[None]:
    return _event_stream(_path(endpoint, "logs", job), after)


def worker_log(endpoint: str, worker: str) -> Call[WorkerLog]:
    return Call("GET", _path_of_log(endpoint, worker), _worker_log, idempotent=True, under="v1")


def worker_log_events(endpoint: str, worker: str, after: str | None) -> Call[None]:
    return _event_stream(_path_of_log(endpoint, worker), after, under="v1")


def pod_log_events(pods: str, pod: str, after: str | None) -> Call[None]:
    """Returns the call whose path is `/v2/pods/{pod}/logs`."""
    return _event_stream(_path(pods, pod, "logs"), after)


def upload(endpoint: str, name: str, data: bytes, media_type: str) -> Call[str]:
    """Returns a call that may be sent again: a file that no job uses is deleted after a day. Characters of
    `name` that are not UTF-8 are sent as question marks."""
    return Call(
        "POST",
        _path(endpoint, "files"),
        lambda body: str(body["url"]),
        content=data,
        params={"name": name.encode(errors="replace").decode()},
        headers={"Content-Type": media_type},
        idempotent=True,
    )


def health(endpoint: str) -> Call[Health]:
    def read(body: Mapping[str, Any]) -> Health:
        return Health(body["jobs"], body["workers"], tuple(body.get("serves", ())))

    return Call("GET", f"endpoints/{_path(endpoint, 'health')}", read, idempotent=True, under="v1")


def input_schemas() -> Call[Mapping[str, Mapping[str, Any]]]:
    def read(body: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        schemas: Mapping[str, Any] = body["components"]["schemas"]
        return {
            name.removesuffix(".input"): schema for name, schema in schemas.items() if name.endswith(".input")
        }

    return Call("GET", "openapi.json", read, idempotent=True, under="")


def poll(endpoint: str, job: str, wait_ms: int) -> Call[Poll]:
    """Returns a call that is sent once: the outputs of a lost response count as read."""
    return Call(
        "GET", _path(endpoint, "stream", job), _poll, params={"wait": wait_ms}, longest_wait_ms=wait_ms
    )


def events(endpoint: str, job: str, after: str | None) -> Call[None]:
    return _event_stream(_path(endpoint, "stream", job), after)


def _event_stream(path: str, after: str | None, under: str = "v2") -> Call[None]:
    headers = {"Accept": "text/event-stream"}
    if after:
        headers["Last-Event-ID"] = after
    return Call("GET", path, lambda body: None, headers=headers, idempotent=True, under=under)


def result(call: Call[T], reply: Reply) -> T:
    """Returns the result in the reply. Raises ApiError for a reply that is not a success, ClientError for one
    that cannot be read."""
    if not 200 <= reply.status < 300:
        raise refusal(reply)
    body = None if reply.status == 204 else read_json(reply.text)
    try:
        return call.read(body)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ClientError(
            f"{call.method} {call.path} answered something else: {reply.text[:200]!r}"
        ) from None


def refusal(reply: Reply) -> ApiError:
    try:
        body = json.loads(reply.text)
    except ValueError:
        body = reply.text
    message = body.get("error") or body.get("detail") if isinstance(body, dict) else None
    return BY_STATUS.get(reply.status, ApiError)(
        str(message or f"the service answered {reply.status} {reply.phrase}"),
        status=reply.status,
        body=body,
        retry_after=float(reply.retry_after) if reply.retry_after.isdecimal() else None,
    )


def read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ClientError(f"the answer is not JSON: {text[:200]!r}") from None


def _path(endpoint: str, operation: str, job: str | None = None) -> str:
    parts = [endpoint, operation] if job is None else [endpoint, operation, job]
    return "/".join(quote(part, safe="") for part in parts)


def _path_of_log(endpoint: str, worker: str) -> str:
    return f"endpoints/{_path(endpoint, 'workers', worker)}/logs"


def _params(**params: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in params.items() if value is not None}


def _submission(
    input_: Mapping[str, Any],
    *,
    idempotency_key: str | None = None,
    webhook: str | None = None,
    policy: Mapping[str, Any] | None = None,
    s3_config: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns the arguments of Call that every submission has."""
    optional = {"webhook": webhook, "policy": policy, "s3Config": s3_config}
    body = {"input": input_, **{name: value for name, value in optional.items() if value is not None}}
    key = secrets.token_hex(16) if idempotency_key is None else _check_key(idempotency_key)
    return {"body": body, "headers": {"Idempotency-Key": key}, "idempotent": True}


def _check_key(key: str) -> str:
    if not (0 < len(key) <= 255 and all("!" <= character <= "~" for character in key)):
        raise ClientError(f"an idempotency key must be 1 to 255 visible ASCII characters; got {key[:300]!r}")
    return key


def _page(body: Mapping[str, Any]) -> JobPage:
    return JobPage(tuple(JobRecord.read(job) for job in body["requests"]), body.get("cursor"))


def _logs(body: Mapping[str, Any]) -> tuple[AttemptLog, ...]:
    return tuple(
        AttemptLog(log["attempt"], log["worker"], tuple(log["lines"]), tuple(log.get("printedAt", ())))
        for log in body["logs"]
    )


def _attempts(body: Mapping[str, Any]) -> JobAttempts:
    found = tuple(map(Attempt.read, body["attempts"]))
    return JobAttempts(body["createdAt"], body.get("endedAt"), found)


def _case(body: Mapping[str, Any]) -> dict[str, Any]:
    return dict(body)


def _worker_log(body: Mapping[str, Any]) -> WorkerLog:
    return WorkerLog(body["id"], tuple(body["lines"]), tuple(body.get("printedAt", ())))


def _poll(body: Mapping[str, Any]) -> Poll:
    return Poll(str(body["status"]), tuple(chunk["output"] for chunk in body["stream"]))
