"""The shapes of what is sent and answered, as JSON schemas of the OpenAPI document. Data only.

They are as strict as the code: an answer that they do not allow is a mistake, here or there.
"""

from __future__ import annotations

from typing import Any

from stoker.control.http.calls.query_parameters import CURSOR as CURSOR_NUMBERS
from stoker.control.http.calls.query_parameters import SINCE_MS
from stoker.control.rules.job_states import TERMINAL, JobState
from stoker.control.rules.limits import (
    DEFAULT_PAGE_SIZE,
    EXECUTION_TIMEOUT_MS,
    INLINE_BYTES,
    KEY_LENGTH,
    MIB,
    TTL_MS,
    URL_LENGTH,
)
from stoker.control.rules.limits import PAGE_SIZE as PAGE_SIZES

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
MILLISECONDS: Schema = {"type": "integer", "minimum": 0, "description": "Milliseconds."}
ENDED = sorted(TERMINAL)
LIVE = sorted(set(JobState) - TERMINAL)


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def between(bounds: tuple[int, int], **more: Any) -> Schema:
    return {"type": "integer", "minimum": bounds[0], "maximum": bounds[1], **more}


def exactly(required: Schema, optional: Schema | None = None) -> Schema:
    """Returns the schema of an object with these members and no others."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


def _states(states: list[JobState]) -> Schema:
    return {"type": "string", "enum": [state.value for state in states]}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


# -- what is sent

URL: Schema = {
    "type": "string",
    "maxLength": URL_LENGTH,
    "pattern": r"^https?://([A-Za-z][A-Za-z0-9]*\.)+[A-Za-z]{2,}(:[0-9]{1,4})?(/[!-~]*)?$",
    "examples": ["https://caller.example/done"],
}
_NAMED: Schema = {"type": "string", "minLength": 1}
_BUCKET: Schema = {
    "accessId": _NAMED,
    "accessSecret": {**_NAMED, "format": "password"},
    "bucketName": _NAMED,
    "endpointUrl": URL,
}
_REGION: Schema = {
    "type": "string",
    "pattern": "^([A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)?$",
    "description": "The bucket's region; learnt from the endpoint or the store where it is left out.",
}
_POLICY: Schema = {
    "executionTimeout": _or_null(
        between(
            EXECUTION_TIMEOUT_MS, description="Milliseconds of work; the endpoint's where it is left out."
        )
    ),
    "ttl": _or_null(between(TTL_MS, description="Milliseconds from submission to deletion, in any state.")),
    "lowPriority": {"type": ["boolean", "null"], "description": "Whether the job starts no further worker."},
}
SUBMISSION: Schema = {
    "type": "object",
    "required": ["input"],
    "properties": {
        "input": {"type": "object", "description": "What the handler gets."},
        "webhook": _or_null({**URL, "description": "Called when the job ends."}),
        "policy": {"type": ["object", "null"], "properties": _POLICY},
        "s3Config": {
            "type": ["object", "null"],
            "description": "The bucket for this job's files; an empty object is none.",
            "anyOf": [{"maxProperties": 0}, {"required": list(_BUCKET)}],
            "properties": {**_BUCKET, "objectPath": _or_null(TEXT), "region": _or_null(_REGION)},
        },
    },
}
IDEMPOTENCY_KEY: Schema = {"type": "string", "pattern": f"^[!-~]{{1,{KEY_LENGTH}}}$"}
STATUS: Schema = _states(sorted(JobState))
PAGE_SIZE: Schema = between(PAGE_SIZES, default=DEFAULT_PAGE_SIZE)
CURSOR: Schema = between(CURSOR_NUMBERS)
SINCE: Schema = between(SINCE_MS)

# -- what is answered

_RETRIES: Schema = {"type": "integer", "minimum": 1, "description": "Attempts after the first."}
_REASON: Schema = {
    "type": "string",
    "description": "Why it waits, why its result is not uploaded yet, or why it ended so.",
}
_OUTPUT: Schema = {
    "description": (
        f"What the handler returned, or its last progress value. Over {INLINE_BYTES // MIB} MiB it is an"
        " object of output_url, size and sha256."
    )
}
_LIVE: Schema = {
    "delayTime": MILLISECONDS,
    "executionTime": MILLISECONDS,
    "workerId": TEXT,
    "reason": _REASON,
    "retries": _RETRIES,
}
_ENDED: Schema = {
    "id": TEXT,
    "status": _states(ENDED),
    "delayTime": MILLISECONDS,
    "executionTime": MILLISECONDS,
    "workerId": TEXT,
}
_LINES: Schema = {"type": "array", "items": TEXT}
_AFTER: Schema = {"error": TEXT, "reason": _REASON, "logs": _LINES, "retries": _RETRIES}
_CREATED: Schema = {"createdAt": {"type": "integer", "description": "Milliseconds since the epoch."}}
_JOBS = ("completed", "failed", "inProgress", "inQueue", "retried")
_WORKERS = ("idle", "initializing", "ready", "running", "throttled", "unhealthy")

COMPONENTS: dict[str, Schema] = {
    "Error": exactly({"error": TEXT, "status": {"type": "integer"}, "title": TEXT, "detail": TEXT}),
    "Missing": exactly({"error": TEXT, "title": TEXT, "detail": TEXT}),
    "RefusedInput": exactly({"id": TEXT, "status": {"const": "FAILED"}, "error": TEXT}),
    "Accepted": exactly({"id": TEXT, "status": {"const": "IN_QUEUE"}}),
    "LiveRecord": exactly({"id": TEXT, "status": _states(LIVE)}, {**_LIVE, "output": _OUTPUT}),
    "EndedRecord": exactly(_ENDED, {**_AFTER, "output": _OUTPUT}),
    "Record": {"oneOf": [ref("LiveRecord"), ref("EndedRecord")]},
    "ListedRecord": {
        "oneOf": [
            exactly({"id": TEXT, "status": _states(LIVE), **_CREATED}, _LIVE),
            exactly({**_ENDED, **_CREATED}, _AFTER),
        ]
    },
    "Page": exactly(
        {
            "requests": {"type": "array", "items": ref("ListedRecord")},
            "cursor": {"type": ["string", "null"], "description": "Gets the next page, where there is one."},
        }
    ),
    "StreamPoll": exactly(
        {
            "status": STATUS,
            "stream": {"type": "array", "items": exactly({"output": {"description": "What was given."}})},
        },
        {"error": TEXT},
    ),
    "Purged": exactly({"removed": COUNT, "status": {"const": "completed"}}),
    "Logs": exactly(
        {
            "id": TEXT,
            "logs": {
                "type": "array",
                "items": exactly(
                    {"attempt": {"type": "integer", "minimum": 1}, "worker": TEXT, "lines": _LINES}
                ),
            },
        }
    ),
    "GivenFile": exactly(
        {
            "url": TEXT,
            "size": COUNT,
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "expiresAt": {"type": "integer", "description": "Milliseconds since the epoch."},
        }
    ),
    "Health": exactly(
        {
            "jobs": exactly(dict.fromkeys(_JOBS, COUNT)),
            "workers": exactly(dict.fromkeys(_WORKERS, COUNT)),
        },
        {
            "devices": exactly({"ill": {"type": "object", "additionalProperties": TEXT}}),
            "reason": {
                "type": "string",
                "description": "Why workers are throttled, or what one waits for before it starts.",
            },
            "serves": {
                **_LINES,
                "description": "What ready workers report that they run: for example, a model.",
            },
        },
    ),
    "Submission": SUBMISSION,
}
