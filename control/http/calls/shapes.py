"""The shapes of what is sent and answered, which the OpenAPI document describes.

They are as strict as the code: an answer that they do not allow is a mistake, here or there. A key that may
be missing is never null, unless its type says so.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from stoker.control.rules.limits import (
    DEADLINE_MS,
    EXECUTION_TIMEOUT_MS,
    INLINE_BYTES,
    MIB,
    START_BY_MS,
    TTL_MS,
    URL_LENGTH,
)

URL_PATTERN = r"^https?://([A-Za-z][A-Za-z0-9]*\.)+[A-Za-z]{2,}(:[1-9][0-9]{0,3})?(/[!-[\]-~]*)?$"
JOB = "d3b0a1c2-5f64-4e0e-9c7b-0d9a7d1f2b63-u1"
WORKER = "oqk7ao1uomckye"
PRINTED_AT = [1_764_292_471_207, 1_764_292_474_018]

_BUCKET = ["accessId", "accessSecret", "bucketName", "endpointUrl"]
_REGION = "The bucket's region; learnt from the endpoint or the store where it is left out."
_WORK = EXECUTION_TIMEOUT_MS
_LIMIT = "Milliseconds of work; the endpoint's where it is left out."
_TTL = "Milliseconds from submission to deletion, in any state."
_START_BY = "Milliseconds from submission; where no worker was given the job by then, it is TIMED_OUT."
_DEADLINE = "Milliseconds from submission; where the job has not ended by then, it is TIMED_OUT."
_CLASS = (
    "The class of the job; normal where it is left out. A low one waits for workers that run, as with"
    " lowPriority. A key has a highest class."
)

_POSITION = "The place of a waiting job in its queue now: 1 is next. Absent behind more than 1000 jobs."
_EXPECTED = (
    "When a waiting job is expected to start, in milliseconds since the epoch, by the jobs before it and how"
    " long jobs took lately. Absent where that is not known."
)

_STARTED = "When the handler got the job, in milliseconds since the epoch; known once the attempt has ended."
_CHUNK = "When its first partial output was stored, in milliseconds since the epoch."
_UPLOADING = (
    "When its result began to be uploaded, in milliseconds since the epoch; the upload lasts until `endedAt`."
)
_END = (
    "Why the attempt ended: completed, failed, timed_out or cancelled with its job; failed, lost, yielded,"
    " node_lost, dropped, not_sent, refused or handed_back before the job was tried again. Absent while it"
    " runs."
)
_LOST = {
    "attempt": 1,
    "worker": "k2mzu3m1l1q6vd",
    "node": "gpu-1",
    "assignedAt": 1_764_292_469_020,
    "endedAt": 1_764_292_471_310,
    "end": "node_lost",
    "reason": "node gpu-1 was lost: no word from it for 60 s",
}
_ENDED = {
    "attempt": 2,
    "worker": WORKER,
    "node": "gpu-2",
    "assignedAt": 1_764_292_473_310,
    "startedAt": 1_764_292_473_318,
    "firstChunkAt": 1_764_292_474_018,
    "uploadingAt": 1_764_292_477_304,
    "endedAt": 1_764_292_479_511,
    "executionTime": 3986,
    "end": "completed",
}

_SUBMITTED: Any = {
    "input": {"prompt": "a lighthouse at dawn", "seed": 42},
    "webhook": "https://caller.example/done",
    "policy": {"executionTimeout": 60_000, "ttl": 3_600_000},
}

Url = Annotated[
    str, Field(max_length=URL_LENGTH, pattern=URL_PATTERN, examples=["https://caller.example/done"])
]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[int, Field(ge=0, description="Milliseconds.")]
Epoch = Annotated[int, Field(description="Milliseconds since the epoch.")]
PrintedAt = Annotated[
    list[int], Field(description="When each line was printed, in milliseconds since the epoch.")
]

# -- what is sent


class Policy(TypedDict):
    executionTimeout: NotRequired[
        Annotated[int, Field(ge=EXECUTION_TIMEOUT_MS[0], le=EXECUTION_TIMEOUT_MS[1], description=_LIMIT)]
        | None
    ]
    ttl: NotRequired[Annotated[int, Field(ge=TTL_MS[0], le=TTL_MS[1], description=_TTL)] | None]
    lowPriority: NotRequired[
        Annotated[bool | None, Field(description="Whether the job starts no further worker.")]
    ]
    startBy: NotRequired[
        Annotated[int, Field(ge=START_BY_MS[0], le=START_BY_MS[1], description=_START_BY)] | None
    ]
    deadline: NotRequired[
        Annotated[int, Field(ge=DEADLINE_MS[0], le=DEADLINE_MS[1], description=_DEADLINE)] | None
    ]
    priority: NotRequired[Annotated[Literal["urgent", "normal", "low"], Field(description=_CLASS)] | None]


@with_config(ConfigDict(json_schema_extra={"anyOf": [{"maxProperties": 0}, {"required": [*_BUCKET]}]}))
class Bucket(TypedDict):
    """The bucket for this job's files; an empty object is none."""

    accessId: NotRequired[Text]
    accessSecret: NotRequired[Annotated[Text, Field(json_schema_extra={"format": "password"})]]
    bucketName: NotRequired[Text]
    endpointUrl: NotRequired[Url]
    objectPath: NotRequired[str | None]
    region: NotRequired[
        Annotated[str, Field(pattern="^([A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)?$", description=_REGION)]
        | None
    ]


@with_config(ConfigDict(json_schema_extra={"examples": [_SUBMITTED]}))
class Submission(TypedDict):
    input: Annotated[dict[str, Any], Field(description="What the handler gets.")]
    webhook: NotRequired[Annotated[Url, Field(description="Called when the job ends.")] | None]
    policy: NotRequired[Policy | None]
    s3Config: NotRequired[Bucket | None]


# -- what is answered


def _answers(*examples: dict[str, Any]) -> Any:
    """Returns a decorator of shapes that have their own keys only. They are compiled for the document, as no
    answer is compared with them: 200 of them, by statuses and routes, are 0.1 s of a start."""
    return with_config(
        ConfigDict(
            defer_build=True,
            extra="forbid",
            json_schema_extra={"examples": [*examples]} if examples else None,
        )
    )


Live = Literal["IN_PROGRESS", "IN_QUEUE"]
Ended = Literal["CANCELLED", "COMPLETED", "FAILED", "TIMED_OUT"]
Retries = Annotated[int, Field(ge=1, description="Attempts after the first.")]
ReplayOf = Annotated[str, Field(description="The job that this one is a replay of.")]
ReplayedOn = Annotated[str, Field(description="The node of the replay.")]
Reason = Annotated[
    str,
    Field(
        description="Why it waits, why it began anew in spite of a save, why its result is not uploaded"
        " yet, or why it ended so."
    ),
]
Output = Annotated[
    Any,
    Field(
        description=f"What the handler returned, or its last progress value. Over {INLINE_BYTES // MIB} MiB"
        " it is an object of output_url, size and sha256."
    ),
]


@_answers()
class Error(TypedDict):
    error: str
    status: int
    title: str
    detail: str


@_answers()
class Missing(TypedDict):
    error: str
    title: str
    detail: str


@_answers()
class RefusedInput(TypedDict):
    """The refusal of a hosted model's input, which has a record's shape."""

    id: str
    status: Literal["FAILED"]
    error: str


@_answers({"id": JOB, "status": "IN_QUEUE"})
class Accepted(TypedDict):
    id: str
    status: Literal["IN_QUEUE"]


@_answers({"id": JOB, "endpoint": "k2v8w0q4m1x7z3", "status": "IN_QUEUE"})
class Replayed(TypedDict):
    id: str
    endpoint: Annotated[str, Field(description="The endpoint made for it, at which its record is read.")]
    status: Literal["IN_QUEUE"]


class _Running(TypedDict):
    id: str
    status: Live
    delayTime: NotRequired[Milliseconds]
    executionTime: NotRequired[Milliseconds]
    workerId: NotRequired[str]
    reason: NotRequired[Reason]
    retries: NotRequired[Retries]
    position: NotRequired[Annotated[int, Field(ge=1, description=_POSITION)]]
    expectedStartAt: NotRequired[Annotated[Epoch, Field(description=_EXPECTED)]]
    replayOf: NotRequired[ReplayOf]
    replayedOn: NotRequired[ReplayedOn]


class _Over(TypedDict):
    id: str
    status: Ended
    delayTime: Milliseconds
    executionTime: Milliseconds
    workerId: str
    error: NotRequired[str]
    reason: NotRequired[Reason]
    logs: NotRequired[list[str]]
    retries: NotRequired[Retries]
    replayOf: NotRequired[ReplayOf]
    replayedOn: NotRequired[ReplayedOn]


_RUNNING = {"id": JOB, "status": "IN_PROGRESS", "delayTime": 120, "workerId": WORKER}
_DONE = {"id": JOB, "status": "COMPLETED", "delayTime": 17, "executionTime": 3986, "workerId": WORKER}


@_answers(_RUNNING)
class LiveRecord(_Running):
    output: NotRequired[Output]


@_answers({**_DONE, "output": {"image_url": "https://objects.example/out.png?signed", "cost": 0.02097152}})
class EndedRecord(_Over):
    output: NotRequired[Output]


@_answers()
class ListedLiveRecord(_Running):
    createdAt: Epoch


@_answers({**_DONE, "createdAt": 1_760_000_000_123})
class ListedEndedRecord(_Over):
    createdAt: Epoch


@_answers()
class Page(TypedDict):
    requests: list[ListedLiveRecord | ListedEndedRecord]
    cursor: Annotated[str | None, Field(description="Gets the next page, where there is one.")]


@_answers({"status": "IN_PROGRESS", "stream": [{"output": "first"}, {"output": "second"}]})
class StreamPoll(TypedDict):
    status: Live | Ended
    stream: list[dict[Literal["output"], Any]]
    error: NotRequired[str]


@_answers({"removed": 3, "status": "completed"})
class Purged(TypedDict):
    removed: Count
    status: Literal["completed"]


@_answers({"attempt": 1, "worker": WORKER, "lines": ["loading", "step 1 of 8"], "printedAt": PRINTED_AT})
class AttemptLines(TypedDict):
    attempt: Annotated[int, Field(ge=1)]
    worker: str
    lines: list[str]
    printedAt: NotRequired[PrintedAt]


@_answers()
class Logs(TypedDict):
    id: str
    logs: list[AttemptLines]


@_answers({"id": JOB, "input": {"prompt": "a lighthouse at dawn", "seed": 42}})
class JobInput(TypedDict):
    id: str
    input: Any


class Attempt(TypedDict):
    attempt: Annotated[int, Field(ge=1)]
    worker: str
    node: NotRequired[Annotated[str, Field(description="The id of the worker's node.")]]
    assignedAt: Epoch
    startedAt: NotRequired[Annotated[Epoch, Field(description=_STARTED)]]
    firstChunkAt: NotRequired[Annotated[Epoch, Field(description=_CHUNK)]]
    uploadingAt: NotRequired[Annotated[Epoch, Field(description=_UPLOADING)]]
    endedAt: NotRequired[Epoch]
    executionTime: NotRequired[Milliseconds]
    end: NotRequired[Annotated[str, Field(description=_END)]]
    reason: NotRequired[Annotated[str, Field(description="Why the job was tried again after it.")]]


@_answers(
    {
        "id": JOB,
        "createdAt": 1_764_292_469_002,
        "endedAt": 1_764_292_479_511,
        "attempts": [_LOST, _ENDED],
    }
)
class Attempts(TypedDict):
    id: str
    createdAt: Epoch
    endedAt: NotRequired[Epoch]
    attempts: list[Attempt]


@_answers({"id": WORKER, "lines": ["loading", "listening on port 8000"], "printedAt": PRINTED_AT})
class WorkerLog(TypedDict):
    id: str
    lines: list[str]
    printedAt: NotRequired[PrintedAt]


class FetchedFile(TypedDict):
    url: Annotated[str, Field(description="Without its query.")]
    size: Count
    sha256: str


class SavedState(TypedDict):
    upto: Annotated[int, Field(ge=0, description="How many chunks it covers.")]
    sha256: str
    body: Annotated[str, Field(description="What the handler saved, in base64.")]


@_answers()
class Case(TypedDict):
    """The case of a job that has ended. What was not known is absent; what a worker noted has the types that
    the worker gave it."""

    case: Annotated[Literal[1], Field(description="The version of this shape.")]
    id: str
    endpoint: str
    version: NotRequired[Annotated[int, Field(description="Of the endpoint.")]]
    attempt: Annotated[int, Field(ge=1)]
    status: Literal["COMPLETED", "FAILED", "TIMED_OUT"]
    createdAt: Epoch
    error: NotRequired[str]
    input: NotRequired[Annotated[Any, Field(description="As it was stored, URLs without their queries.")]]
    progress: NotRequired[Annotated[Any, Field(description="What the job reported last.")]]
    executionTimeoutMs: Annotated[int, Field(ge=1, description="The time limit of the job's work.")]
    worker: str
    node: dict[str, Any]
    devices: NotRequired[list[dict[str, Any]]]
    python: NotRequired[str]
    system: NotRequired[str]
    libraries: NotRequired[dict[str, str]]
    cuda: NotRequired[str | None]
    source: NotRequired[Annotated[dict[str, str], Field(description="The sha256 of each source file.")]]
    environment: NotRequired[Annotated[list[str], Field(description="The names of the worker's variables.")]]
    settings: NotRequired[
        Annotated[
            dict[str, str], Field(description="The variables that chose the pipeline and its speed-ups.")
        ]
    ]
    scratch: NotRequired[str]
    files: NotRequired[Annotated[list[FetchedFile], Field(description="What the handler had fetched.")]]
    raised: NotRequired[Annotated[dict[str, Any], Field(description="What the handler raised, and where.")]]
    handler: NotRequired[str]
    image: NotRequired[str]
    concurrency: NotRequired[int]
    declaredEnvironment: NotRequired[list[str]]
    weights: NotRequired[list[dict[str, Any]]]
    saved: NotRequired[SavedState]


@_answers()
class GivenFile(TypedDict):
    url: Annotated[
        str, Field(examples=["https://objects.example/talking-video/given/8x2/0-voice.wav?signed"])
    ]
    size: Count
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    expiresAt: Epoch


@_answers()
class JobCounts(TypedDict):
    completed: Count
    failed: Count
    inProgress: Count
    inQueue: Count
    retried: Count


@_answers()
class WorkerCounts(TypedDict):
    idle: Count
    initializing: Count
    ready: Count
    running: Count
    throttled: Count
    unhealthy: Count


@_answers(
    {
        "jobs": {"completed": 812, "failed": 2, "inProgress": 1, "inQueue": 0, "retried": 3},
        "workers": {"idle": 1, "initializing": 0, "ready": 2, "running": 1, "throttled": 0, "unhealthy": 0},
    }
)
class Health(TypedDict):
    jobs: JobCounts
    workers: WorkerCounts
    devices: NotRequired[dict[Literal["ill"], dict[str, str]]]
    reason: NotRequired[
        Annotated[
            str, Field(description="Why workers are throttled, or what one waits for before it starts.")
        ]
    ]
    serves: NotRequired[
        Annotated[
            list[str], Field(description="What ready workers report that they run: for example, a model.")
        ]
    ]


Record = LiveRecord | EndedRecord
