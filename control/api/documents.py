"""What `/docs` says of each operation: parameters, bodies and every answer, with examples. Data only."""

from __future__ import annotations

from typing import Any

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
    "health": "Counters of jobs and workers",
}

DESCRIPTIONS = {
    "run": "The body may have 10 MB. The result stays readable for 30 minutes after the job's end.",
    "runsync": (
        "The body may have 20 MB. If the wait passes first, the answer is the record as it stands and the job"
        " goes on. Leaving does not cancel the job. Hosted models wait 300 s by default, and their results"
        " carry only COMPLETED or FAILED."
    ),
    "status": "While the job runs, `output` is its last progress value.",
    "status-sync": "As `/status`, but held until the job has ended or the wait has passed.",
    "stream": (
        "Each poll answers with the chunks that no poll got before, held while there are none; the job's"
        " end is told together with its last chunks. With `Accept: text/event-stream` the answer is a stream"
        " of events chunk, progress, reset and end; `Last-Event-ID` takes it up where it broke off."
    ),
    "cancel": "The job reads CANCELLED at once; its work is stopped.",
    "health": "All eleven counters, always.",
}

_QUEUED = {"id": JOB, "status": "IN_QUEUE"}
_RUNNING = {"id": JOB, "status": "IN_PROGRESS", "delayTime": 120, "workerId": WORKER}
_DONE = {
    "id": JOB,
    "status": "COMPLETED",
    "delayTime": 17,
    "executionTime": 3986,
    "workerId": WORKER,
    "output": {"image_url": "https://objects.example/out.png?signed", "cost": 0.02097152},
}
_FAILED = {
    "id": JOB,
    "status": "FAILED",
    "delayTime": 17,
    "executionTime": 12,
    "workerId": WORKER,
    "error": "ValueError: no such file",
}
_REFUSED = {
    "id": f"sync-{JOB}",
    "status": "FAILED",
    "error": "Invalid parameter: width must be divisible by 64, got 100; allowed: 256 to 1536 in steps of 64",
}
_RECORDS = {"completed": _DONE, "failed": _FAILED, "running": _RUNNING, "queued": _QUEUED}
_HEALTH = {
    "jobs": {"completed": 27, "failed": 0, "inProgress": 1, "inQueue": 0, "retried": 0},
    "workers": {"idle": 0, "initializing": 0, "ready": 1, "running": 1, "throttled": 0, "unhealthy": 0},
}
_EVENTS = f'event: chunk\nid: 1-0\ndata: {{"output":"first"}}\n\nevent: end\ndata: {{"id":"{JOB}"}}\n\n'

_SUBMISSION: Document = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["input"],
                "properties": {
                    "input": {"type": "object", "description": "What the handler gets."},
                    "webhook": {
                        "type": "string",
                        "format": "uri",
                        "description": "Called when the job ends.",
                    },
                    "policy": {
                        "type": "object",
                        "properties": {
                            "executionTimeout": {
                                "type": "integer",
                                "minimum": 5_000,
                                "maximum": 604_800_000,
                                "description": "Milliseconds; 600000 unless the endpoint says otherwise.",
                            },
                            "ttl": {
                                "type": "integer",
                                "minimum": 10_000,
                                "maximum": 604_800_000,
                                "default": 86_400_000,
                                "description": "Milliseconds from submission to deletion, in any state.",
                            },
                            "lowPriority": {
                                "type": "boolean",
                                "default": False,
                                "description": "Whether the job starts no further worker.",
                            },
                        },
                    },
                    "s3Config": {
                        "type": "object",
                        "description": "The bucket for this job's files.",
                        "required": ["accessId", "accessSecret", "bucketName", "endpointUrl"],
                        "properties": {
                            "accessId": {"type": "string"},
                            "accessSecret": {"type": "string", "format": "password"},
                            "bucketName": {"type": "string"},
                            "endpointUrl": {"type": "string", "format": "uri"},
                            "objectPath": {"type": "string"},
                        },
                    },
                },
            },
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

_ERROR_SCHEMA: Document = {
    "type": "object",
    "required": ["error", "status", "title", "detail"],
    "properties": {
        "error": {"type": "string"},
        "status": {"type": "integer"},
        "title": {"type": "string"},
        "detail": {"type": "string"},
    },
}


def parameters(operation: str, *, takes_job: bool) -> list[Document]:
    found = [_parameter("endpoint_id", "path", {"type": "string"}, "An endpoint's id or alias.")]
    if takes_job:
        found.append(_parameter("job_id", "path", {"type": "string"}, "As `/run` answered it."))
    if operation in ("runsync", "status-sync", "stream"):
        default = 10_000 if operation == "stream" else 90_000
        wait = {"type": "integer", "minimum": 1_000, "maximum": 300_000, "default": default}
        found.append(_parameter("wait", "query", wait, "How long the answer may be held, in milliseconds."))
    if operation == "stream":
        number = {"type": "string", "examples": ["1-0"]}
        found.append(_parameter("Last-Event-ID", "header", number, "The last event that was seen."))
    return found


def request_body(operation: str) -> Document | None:
    return _SUBMISSION if operation in ("run", "runsync") else None


def responses(operation: str, *, takes_job: bool) -> dict[int | str, Document]:
    """Every answer that an operation gives."""
    submits = operation in ("run", "runsync")
    told: dict[int | str, Document] = {200: _success(operation)}
    if submits:
        told[400] = _refused()
    elif operation in ("status-sync", "stream"):
        told[400] = _error(400, "Bad Request", 'wait must be an integer from 1000 to 300000; got "soon"')
    told[401] = _error(401, "Unauthorized", "invalid api key")
    told[404] = _error(404, "Not Found", "no such job" if takes_job else "no such endpoint")
    told[405] = _error(405, "Method Not Allowed", "DELETE is not allowed here; allowed: POST")
    if submits:
        told[413] = _error(413, "Payload Too Large", "the body must be at most 10485760 bytes; more was sent")
    told[500] = _error(
        500, "Internal Server Error", "something went wrong here; the log has it as error 1f0c"
    )
    told[503] = _error(503, "Service Unavailable", "the store is full; ask again")
    told[503]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return told


def _parameter(name: str, place: str, schema: Document, description: str) -> Document:
    required = place == "path"
    return {"name": name, "in": place, "required": required, "schema": schema, "description": description}


def _success(operation: str) -> Document:
    match operation:
        case "run":
            return _examples("The job was stored.", {"accepted": _QUEUED})
        case "cancel":
            return _examples("The job's state.", {"cancelled": {"id": JOB, "status": "CANCELLED"}})
        case "health":
            return _examples("The counters.", {"health": _HEALTH})
        case "stream":
            poll = {"status": "IN_PROGRESS", "stream": [{"output": "first"}, {"output": "second"}]}
            told = _examples("What came since the last poll; or events.", {"poll": poll})
            told["content"]["text/event-stream"] = {"schema": {"type": "string"}, "example": _EVENTS}
            return told
    return _examples("The job's record.", _RECORDS)


def _refused() -> Document:
    error = _error_value(400, "Bad Request", "input must be an object; got 3")
    return _examples("The body is wrong; a hosted model's refused input has a record's shape.", {
        "body": error,
        "hosted model": _REFUSED,
    })  # fmt: skip


def _error(status: int, title: str, message: str) -> Document:
    told = _examples(title, {"error": _error_value(status, title, message)})
    told["content"]["application/json"]["schema"] = _ERROR_SCHEMA
    return told


def _error_value(status: int, title: str, message: str) -> Document:
    return {"error": message, "status": status, "title": title, "detail": message}


def _examples(description: str, values: Document) -> Document:
    examples = {name: {"value": value} for name, value in values.items()}
    body = {"schema": {"type": "object"}, "examples": examples}
    return {"description": description, "content": {"application/json": body}}
