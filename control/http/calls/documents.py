"""Texts of `/docs` on each operation: parameters, bodies and every answer, with examples. Data only."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from stoker.control.http.calls import schemas
from stoker.control.http.calls.answers import ACCEPT_ENCODING, error_body
from stoker.control.rules.limits import (
    DEFAULT_WAIT_MS,
    FILE_BYTES,
    MIB,
    RATE_LIMITS,
    RUN_BYTES,
    RUNSYNC_BYTES,
    STATUS_TTL_MS,
    STREAM_WAIT_MS,
    WAIT_MS,
    WINDOW_MS,
)
from stoker.control.rules.types import Endpoint

Document = dict[str, Any]

JOB = "d3b0a1c2-5f64-4e0e-9c7b-0d9a7d1f2b63-u1"
WORKER = "oqk7ao1uomckye"

SUMMARIES = {
    "run": "Queue a job and answer at once",
    "runsync": "Queue a job and wait for its result",
    "status": "A job's record",
    "status-sync": "A job's record, held until the job has ended",
    "stream": "What a job gave since the last call, or its events as they happen",
    "cancel": "Stop a job, queued or running",
    "retry": "Queue a failed job again",
    "purge-queue": "Cancel every job that waits",
    "requests": "The endpoint's jobs, newest first",
    "logs": "The last lines that a job's handler wrote",
    "files": "Bring a file along, for an input that is a URL",
    "health": "Counters of jobs and workers",
}

_ONCE = (
    " A request that comes again with the same `Idempotency-Key` within a day is answered with the job of its"
    " first time."
)
DESCRIPTIONS = {
    "run": (
        f"The body may have {RUN_BYTES // MIB} MiB. The result stays readable after the job's end: for 30"
        " minutes, unless the operator says otherwise." + _ONCE
    ),
    "runsync": (
        f"The body may have {RUNSYNC_BYTES // MIB} MiB. If the wait passes first, the answer is the record as"
        " it stands and the job goes on. Leaving does not cancel the job. The results of hosted models carry"
        " only COMPLETED or FAILED: where no `wait` is given, one that has not ended after 300 s is stopped"
        " and has FAILED, and costs nothing." + _ONCE
    ),
    "status": "While the job runs, `output` is its last progress value. `ttl` shortens the job's life.",
    "status-sync": "As `/status`, but held until the job has ended or the wait has passed.",
    "stream": (
        "Each poll answers with the chunks that no poll got before, held while there are none; the job's"
        " end comes together with its last chunks. A poll after CANCELLED reads FAILED, which"
        " every client takes for an end. With `Accept: text/event-stream` the answer is a stream of events"
        " chunk, progress, reset and end; `Last-Event-ID` takes it up where it broke off."
    ),
    "cancel": "The job reads CANCELLED at once; its work is stopped. A job that had ended keeps its record.",
    "retry": "Only FAILED and TIMED_OUT jobs; id, input and time to live stay; the old result is deleted.",
    "purge-queue": "Running jobs go on.",
    "requests": (
        "Records without output. A page may hold fewer than `limit` records: it is the last when `cursor` is"
        " null."
    ),
    "logs": (
        "At most 100 lines and 16 KiB of each attempt, once it has ended. With `follow=true`, or with"
        " `Accept: text/event-stream`, the answer is a stream of events log, skipped, reset and end: what is"
        " still kept first, then lines as they are printed; `Last-Event-ID` takes it up where it broke off."
    ),
    "files": (
        f"The body is the file, of {FILE_BYTES // MIB} MiB at most. The answer's `url` can be named in an"
        " input for a day; then the file is deleted."
    ),
    "health": "All eleven counters, always.",
}

SUBMITS = ("run", "runsync")
LONG_POLLS = ("runsync", "status-sync", "stream")
READS_BODY = (*SUBMITS, "status-sync", "stream", "files")
_WAITS = {"runsync": DEFAULT_WAIT_MS, "status-sync": DEFAULT_WAIT_MS, "stream": STREAM_WAIT_MS}

_QUEUED = {"id": JOB, "status": "IN_QUEUE"}
_RUNNING = {"id": JOB, "status": "IN_PROGRESS", "delayTime": 120, "workerId": WORKER}
_ENDED = {"delayTime": 17, "executionTime": 3986, "workerId": WORKER}
_OUTPUT = {"image_url": "https://objects.example/out.png?signed", "cost": 0.02097152}
_DONE = {"id": JOB, "status": "COMPLETED", **_ENDED, "output": _OUTPUT}
_FAILED = {"id": JOB, "status": "FAILED", **_ENDED, "error": "ValueError: no such file"}
_CANCELLED = {"id": JOB, "status": "CANCELLED", **_ENDED}
_REFUSED = {
    "id": f"sync-{JOB}",
    "status": "FAILED",
    "error": "Invalid parameter: width must be divisible by 64, got 100; allowed: 256 to 1536 in steps of 64",
}
_HEALTH = {
    "jobs": {"completed": 27, "failed": 0, "inProgress": 1, "inQueue": 0, "retried": 0},
    "workers": {"idle": 0, "initializing": 0, "ready": 1, "running": 1, "throttled": 0, "unhealthy": 0},
}
_FILE = {
    "url": "https://objects.example/talking-video/given/8x2/0-voice.wav?signed",
    "size": 31_244,
    "sha256": "5f1d" * 16,
    "expiresAt": 1_760_086_400_000,
}
_LINES = (
    'event: log\nid: 1-0\ndata: {"line":"loading"}\n\n'
    f'event: end\ndata: {{"id":"{JOB}","status":"COMPLETED"}}\n\n'
)
_EVENTS = f'event: chunk\nid: 1-0\ndata: {{"output":"first"}}\n\nevent: end\ndata: {{"id":"{JOB}"}}\n\n'

FOLLOWED = {"stream": _EVENTS, "logs": _LINES}

_RECORD = ("Record", {"completed": _DONE, "failed": _FAILED, "running": _RUNNING, "queued": _QUEUED})
_SUCCESS: dict[str, tuple[str, str, Document]] = {
    "run": ("The job was stored.", "Accepted", {"accepted": _QUEUED}),
    "runsync": ("The job's record.", *_RECORD),
    "status": ("The job's record.", *_RECORD),
    "status-sync": ("The job's record.", *_RECORD),
    "stream": (
        "What came since the last poll; or events.",
        "StreamPoll",
        {"poll": {"status": "IN_PROGRESS", "stream": [{"output": "first"}, {"output": "second"}]}},
    ),
    "cancel": ("The record of the job, which has ended.", "EndedRecord", {"cancelled": _CANCELLED}),
    "retry": ("The job waits again.", "Accepted", {"accepted": _QUEUED}),
    "purge-queue": (
        "How many jobs were cancelled.",
        "Purged",
        {"purged": {"removed": 3, "status": "completed"}},
    ),
    "requests": (
        "A page of records.",
        "Page",
        {"page": {"requests": [{**_CANCELLED, "createdAt": 1_760_000_000_123}], "cursor": "1041"}},
    ),
    "logs": (
        "The lines of each attempt.",
        "Logs",
        {
            "logs": {
                "id": JOB,
                "logs": [{"attempt": 1, "worker": WORKER, "lines": ["loading", "step 1 of 8"]}],
            }
        },
    ),
    "files": ("Where it is stored.", "GivenFile", {"kept": _FILE}),
    "health": ("The counters.", "Health", {"health": _HEALTH}),
}

_SUBMISSION: Document = {
    "required": True,
    "content": {
        "application/json": {
            "schema": schemas.ref("Submission"),
            "examples": {
                "plain": {"value": {"input": {"prompt": "a lighthouse at dawn"}}},
                "with a policy": {
                    "value": {
                        "input": {"prompt": "a lighthouse at dawn", "seed": 42},
                        "webhook": "https://caller.example/done",
                        "policy": {"executionTimeout": 60_000, "ttl": 3_600_000},
                    }
                },
            },
        }
    },
}

_BAD_REQUESTS = {
    "status": "ttl must be an integer from 1000 to 604800000 (milliseconds); got 1",
    "status-sync": 'wait must be an integer from 1000 to 300000 (milliseconds); got "soon"',
    "stream": 'wait must be an integer from 1000 to 300000 (milliseconds); got "soon"',
    "retry": f"only FAILED and TIMED_OUT jobs can be retried; job {JOB} is COMPLETED",
    "logs": 'follow must be true or false; got "yes"',
    "files": "the body must be a file; it is empty",
    "requests": 'limit must be an integer from 1 to 1000; got "all"',
}
_WHOLE_SECONDS = {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}


def input_name(endpoint: str) -> str:
    """Returns the name of the component that describes the endpoint's inputs."""
    return f"{endpoint}.input"


def endpoints_described(endpoints: Iterable[Endpoint]) -> str:
    """Returns a table, as Markdown: the endpoints' ids, and where a schema describes the input."""
    rows = ["| endpoint | input |", "|---|---|"]
    for one in sorted(endpoints, key=lambda one: (not one.hosted, one.id)):
        schema = f"schema `{input_name(one.id)}`, below" if one.run.schema else "any object"
        rows.append(f"| `{one.id}` | {schema} |")
    listed = "\n".join(rows) if len(rows) > 2 else "There are no endpoints yet."
    return f"The endpoints that take jobs now, at `/v2/{{endpoint_id}}`:\n\n{listed}"


def description(operation: str) -> str:
    """Returns the operation's description with its rate limits, where it has any."""
    limit = RATE_LIMITS.get(operation)
    if limit is None:
        return DESCRIPTIONS[operation]
    at_once = "" if limit.at_once is None else f" and {limit.at_once} at once"
    limited = f"At least {limit.window} requests in {WINDOW_MS // 1000} s{at_once}; more with workers."
    return f"{DESCRIPTIONS[operation]} {limited}"


_IGNORED: Document = {
    "description": "Names in the body that mean nothing here. `Prefer: handling=strict` has them refused.",
    "schema": {"type": "string"},
}


def parameters(operation: str, *, takes_job: bool) -> list[Document]:
    part = {"type": "string", "pattern": "^[^/]+$"}
    found = [_parameter("endpoint_id", "path", part, "An endpoint's id or alias.")]
    if takes_job:
        found.append(_parameter("job_id", "path", part, "As `/run` answered it."))
    if operation in LONG_POLLS:
        wait = schemas.between(WAIT_MS, default=_WAITS[operation])
        found.append(_parameter("wait", "query", wait, "How long the answer may be held, in milliseconds."))
    if operation == "status":
        ttl = "The record and the job end this many milliseconds from now, if that is earlier than before."
        found.append(_parameter("ttl", "query", schemas.between(STATUS_TTL_MS), ttl))
    if operation in SUBMITS:
        once = "Makes repetitions of this request one job, for a day."
        found.append(_parameter("Idempotency-Key", "header", schemas.IDEMPOTENCY_KEY, once))
    if operation == "logs":
        along = {"type": "boolean", "default": False}
        found.append(_parameter("follow", "query", along, "Lines as they are printed, as events."))
    if operation in FOLLOWED:
        number = {"type": "string", "pattern": "^([0-9]{1,9}-(-1|[0-9]{1,9}))?$", "examples": ["1-0"]}
        found.append(_parameter("Last-Event-ID", "header", number, "The last event that was seen."))
    if operation == "files":
        named = {"type": "string", "default": "file"}
        found.append(_parameter("name", "query", named, "What the file is called."))
    if operation == "requests":
        found += [
            _parameter("status", "query", schemas.STATUS, "Only jobs in this state."),
            _parameter("since", "query", schemas.SINCE, "Only jobs submitted at or after this time."),
            _parameter("limit", "query", schemas.PAGE_SIZE, "How many records a page may hold."),
            _parameter("cursor", "query", schemas.CURSOR, "The `cursor` of the page before."),
        ]
    return found


def request_body(operation: str) -> Document | None:
    if operation == "files":
        file = {"type": "string", "format": "binary", "minLength": 1}
        return {"required": True, "content": {"application/octet-stream": {"schema": file}}}
    return _SUBMISSION if operation in SUBMITS else None


def responses(operation: str, *, takes_job: bool) -> dict[int | str, Document]:
    """Returns every answer that an operation gives, by status."""
    found: dict[int | str, Document] = {200: _success(operation)}
    if operation in SUBMITS:
        found[400] = _refused()
    elif operation in _BAD_REQUESTS:
        found[400] = _error(400, "Bad Request", _BAD_REQUESTS[operation])
    found[401] = _error(401, "Unauthorized", "invalid api key")
    found[401]["headers"] = {"WWW-Authenticate": {"schema": {"const": "Bearer"}}}
    found[404] = _error(404, "Not Found", "no such job" if takes_job else "no such endpoint")
    found[405] = _error(405, "Method Not Allowed", "DELETE is not allowed here; allowed: POST")
    found[405]["headers"] = {"Allow": {"schema": {"type": "string"}}}
    if operation in READS_BODY:
        found[408] = _error(
            408, "Request Timeout", "the body was not received within 30 s; send it faster, or a smaller one"
        )
        found[413] = _error(
            413, "Payload Too Large", "the body must be at most 10485760 bytes; more was sent"
        )
        found[415] = _error(415, "Unsupported Media Type", "Content-Encoding is br; the body may be gzip")
        found[415]["headers"] = {"Accept-Encoding": {"schema": {"const": ACCEPT_ENCODING}}}
    if operation in SUBMITS:
        found[200]["headers"] = {"Stoker-Ignored": _IGNORED}
        found[422] = _error(422, "Unprocessable Entity", "Idempotency-Key order-17 came with another request")
    if operation in RATE_LIMITS:
        found[429] = _too_many(operation)
    found[500] = _error(
        500, "Internal Server Error", "something went wrong here; the log has it as error 1f0c"
    )
    found[503] = _error(503, "Service Unavailable", "the store is full; ask again")
    found[503]["headers"] = {"Retry-After": _WHOLE_SECONDS}
    return found


def _parameter(name: str, location: str, schema: Document, text: str) -> Document:
    return {
        "name": name,
        "in": location,
        "required": location == "path",
        "schema": schema,
        "description": text,
    }


def _success(operation: str) -> Document:
    text, name, values = _SUCCESS[operation]
    response = _examples(text, schemas.ref(name), values)
    if operation in FOLLOWED:
        response["content"]["text/event-stream"] = {"example": FOLLOWED[operation]}
    return response


def _refused() -> Document:
    either = {"oneOf": [schemas.ref("Error"), schemas.ref("RefusedInput")]}
    return _examples(
        "The body is wrong; a hosted model's refused input has a record's shape.",
        either,
        {
            "body": error_body(400, "input must be an object; got 3", "Bad Request"),
            "hosted model": _REFUSED,
        },
    )


def _too_many(operation: str) -> Document:
    limit = RATE_LIMITS[operation].window
    message = f"/{operation} of endpoint echo takes at most {limit} requests in {WINDOW_MS // 1000} seconds"
    response = _error(429, "Too Many Requests", message)
    text = {"schema": {"type": "string"}}
    response["headers"] = {"Retry-After": _WHOLE_SECONDS, "RateLimit-Policy": text, "RateLimit": text}
    return response


def _error(status: int, title: str, message: str) -> Document:
    shape = "Missing" if status == HTTPStatus.NOT_FOUND else "Error"
    return _examples(title, schemas.ref(shape), {"error": error_body(status, message, title)})


def _examples(text: str, schema: Document, values: Document) -> Document:
    examples = {name: {"value": value} for name, value in values.items()}
    return {"description": text, "content": {"application/json": {"schema": schema, "examples": examples}}}
