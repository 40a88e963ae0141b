"""The messages that a worker may send. Pure.

A worker runs user code, so nothing in a frame is trusted. `read` checks each field of a frame and makes one
of the classes below of it, or raises BrokenProtocol; `require_timely` checks that a worker may send that now.
A process that broke the protocol is killed, and its jobs are tried again. What a handler does wrong in a
well-formed frame (a file outside its folder) fails its job with a reason instead: see
`agent.jobs.attempts.worker_events`.

    ready setup_failed                 once, first
    slots retire                       after ready
    progress chunk file save case      of a job, from its `run` to its end
    fetch kept                         the same, each answered
    done failed                        its end, once
    begun returned                     only from the agent's own end of a program (agent.workers.sdk_programs)
    unfit fit                          the same, of an http worker (agent.workers.http_servers.health)

How long a frame may take to arrive is in `agent.workers.processes.frame_socket`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from stoker.wire.messages import AttemptKey
from stoker.worker.errors import clean
from stoker.worker.frames import INLINE_MAX, Frame, FrameError

ERROR_MAX = 32 * 1024
NUMBER_MAX = 2**31 - 1
QUANTITY_MAX = 2**53 - 1
JOB_MAX = 200
NAME_MAX = 1024
METRICS_MAX = 100
METRIC_MAX = 100
STAGES_MAX = 32
WAIT_MAX_S = 10**9


class BrokenProtocol(FrameError):
    """The text ends the sentence "it broke the worker protocol: …"."""


# ---- messages -------------------------------------------------------------------------------------


class Ready(Struct, frozen=True):
    """The message that a worker is ready. `serves`: what it reports that it runs. `ahead`: how many runs it
    takes before their turn. `stages_ms`: what it did since it got its setup, by the name of the stage; empty
    where it does not say."""

    concurrency: int
    serves: str
    ahead: int
    stages_ms: Mapping[str, int] = field(default_factory=dict)
    key: None = None


class SetupFailed(Struct, frozen=True):
    error: str
    key: None = None


class Slots(Struct, frozen=True):
    n: int
    key: None = None


class Retire(Struct, frozen=True):
    """The message that a worker is to be replaced. `lost`: the context of its device is lost, with all that
    runs there except the job `key`."""

    reason: str
    lost: bool
    key: AttemptKey | None = None


class Progress(Struct, frozen=True):
    key: AttemptKey
    body: bytes


class Chunk(Struct, frozen=True):
    """The message with a chunk of a job's output. `fd`, if any, holds the chunk instead of `body`; the
    receiver closes it."""

    key: AttemptKey
    n: int
    body: bytes
    fd: int | None


class Save(Struct, frozen=True):
    """The message with a save of a job. `body` is the handler's, of any form; it covers the chunks before
    `upto`."""

    key: AttemptKey
    n: int
    upto: int
    body: bytes


class Case(Struct, frozen=True):
    """The message with the facts of a job's case. `body`: JSON, the facts for the case of the job, should it
    fail."""

    key: AttemptKey
    body: bytes


class File(Struct, frozen=True):
    """The receiver closes `fd`."""

    key: AttemptKey
    n: int
    name: str
    media_type: str
    fd: int


class Done(Struct, frozen=True):
    key: AttemptKey
    body: bytes
    has_output: bool
    in_file: bool
    files: int
    metrics: Mapping[str, int]


class Failed(Struct, frozen=True):
    """The message that a job has failed. `body`: the output that the handler returned together with its
    error. `yielded`: it saved and gave up its place, as it was asked to."""

    key: AttemptKey
    error: str
    retryable: bool
    body: bytes
    yielded: bool = False


class Fetch(Struct, frozen=True):
    key: AttemptKey
    n: int
    url: str
    max_bytes: int
    timeout_s: float


class Kept(Struct, frozen=True):
    """The wish to get the chunks back that the attempt's save covers, from `first` on."""

    key: AttemptKey
    n: int
    first: int


class Begun(Struct, frozen=True):
    key: AttemptKey


class Returned(Struct, frozen=True):
    key: AttemptKey
    reason: str


class Unfit(Struct, frozen=True):
    """The message that the worker is out of rotation until it is fit again."""

    reason: str
    key: None = None


class Fit(Struct, frozen=True):
    key: None = None


JobMessage: TypeAlias = (
    Progress | Chunk | Save | Case | File | Fetch | Kept | Done | Failed | Begun | Returned
)
WorkerMessage: TypeAlias = Ready | SetupFailed | Slots | Retire | Unfit | Fit | JobMessage


# ---- rules ----------------------------------------------------------------------------------------

_MISSING: Final = object()


class Field(Struct, frozen=True):
    """The rule for one field of a frame. A `text` is for people: it is cleaned and cut. A `name` is refused
    instead of altered. `most` is the greatest number, or the most characters."""

    kind: Literal["whole", "seconds", "text", "name", "truth", "metrics"]
    most: int = 0
    least: int = 0
    default: object = _MISSING

    def check(self, value: object) -> Any:
        """Returns the value, or raises ValueError with what is allowed."""
        match self.kind, value:
            case "whole", int() if type(value) is int and self.least <= value <= self.most:
                return value
            case "seconds", int() | float() if not isinstance(value, bool) and 0 < value < self.most:
                return float(value)
            case "text", str():
                return clean(value, self.most)
            case "name", str() if 0 < len(value) <= self.most:
                with suppress(UnicodeEncodeError):
                    value.encode()
                    return value
            case "truth", bool():
                return value
            case "metrics", dict() if len(value) <= self.most:
                found = {_METRIC.check(name): _QUANTITY.check(amount) for name, amount in value.items()}
                return MappingProxyType(found)
        raise ValueError(f"{self._allowed()} is allowed")

    def _allowed(self) -> str:
        match self.kind:
            case "whole":
                return f"a whole number from {self.least} to {self.most}"
            case "seconds":
                return f"a number above 0 and below {self.most:g}"
            case "text":
                return "text"
            case "name":
                return f"text of 1 to {self.most} characters"
            case "truth":
                return "true or false"
            case "metrics":
                return f"an object of at most {self.most} quantities"


class FrameRule(Struct, frozen=True):
    """The rule for one kind of frame. `body` and `descriptor`: whether the frame comes with one. `raw`: the
    body need not be JSON. `program`: only the agent's own end of a program sends the frame."""

    makes: Callable[..., WorkerMessage]
    fields: Mapping[str, Field] = field(default_factory=dict)
    job: Literal["no", "may", "must"] = "must"
    body: Literal["no", "may", "must"] = "no"
    descriptor: Literal["no", "may", "must"] = "no"
    raw: bool = False
    program: bool = False


_ONE_OR_MORE: Final = Field("whole", NUMBER_MAX, least=1)
_NUMBER: Final = Field("whole", NUMBER_MAX)
_QUANTITY: Final = Field("whole", QUANTITY_MAX)
_METRIC: Final = Field("name", METRIC_MAX)
_ERROR: Final = Field("text", ERROR_MAX)
_NO: Final = Field("truth", default=False)

FRAME_RULES: Final[Mapping[str, FrameRule]] = MappingProxyType(
    {
        "ready": FrameRule(
            Ready,
            {
                "concurrency": Field("whole", NUMBER_MAX, least=1, default=1),
                "serves": Field("text", NAME_MAX, default=""),
                "ahead": Field("whole", NUMBER_MAX, default=0),
                "stages_ms": Field("metrics", STAGES_MAX, default=MappingProxyType({})),
            },
            job="no",
        ),
        "setup_failed": FrameRule(SetupFailed, {"error": _ERROR}, job="no"),
        "slots": FrameRule(Slots, {"n": _ONE_OR_MORE}, job="no"),
        "retire": FrameRule(Retire, {"reason": _ERROR, "lost": _NO}, job="may"),
        "progress": FrameRule(Progress, body="must"),
        "chunk": FrameRule(Chunk, {"n": _NUMBER}, body="may", descriptor="may"),
        "save": FrameRule(Save, {"n": _NUMBER, "upto": _NUMBER}, body="must", raw=True),
        "case": FrameRule(Case, body="must"),
        "file": FrameRule(
            File,
            {
                "n": _NUMBER,
                "name": Field("text", NAME_MAX, default="file"),
                "media_type": Field("text", NAME_MAX, default="application/octet-stream"),
            },
            descriptor="must",
        ),
        "fetch": FrameRule(
            Fetch,
            {
                "n": _NUMBER,
                "url": Field("name", INLINE_MAX),
                "max_bytes": _QUANTITY,
                "timeout_s": Field("seconds", WAIT_MAX_S),
            },
        ),
        "kept": FrameRule(Kept, {"n": _NUMBER, "first": _NUMBER}),
        "done": FrameRule(
            Done,
            {
                "has_output": Field("truth", default=True),
                "in_file": _NO,
                "files": Field("whole", NUMBER_MAX, default=0),
                "metrics": Field("metrics", METRICS_MAX, default=MappingProxyType({})),
            },
            body="may",
        ),
        "failed": FrameRule(Failed, {"error": _ERROR, "retryable": _NO, "yielded": _NO}, body="may"),
        "begun": FrameRule(Begun, program=True),
        "unfit": FrameRule(Unfit, {"reason": _ERROR}, job="no", program=True),
        "fit": FrameRule(Fit, job="no", program=True),
        "returned": FrameRule(Returned, {"reason": _ERROR}, program=True),
    }
)


# ---- reading --------------------------------------------------------------------------------------


def read(frame: Frame, *, program: bool = False) -> WorkerMessage:
    """Raises BrokenProtocol; the caller still owns the frame's descriptor then. `program`: the frame comes
    from the agent's own end of a program, which has checked what the program posts."""
    rule = FRAME_RULES.get(frame.kind)
    if rule is None or (rule.program and not program):
        raise BrokenProtocol(f"it sent {frame.kind!r:.40}, which no worker may send")
    fields = rule.fields
    if rule.job == "must" or (rule.job == "may" and "job" in frame.fields):
        fields = {**fields, **_KEY_FIELDS}
    values: dict[str, Any] = {}
    for name, wanted in fields.items():
        value = frame.fields.get(name, wanted.default)
        if value is _MISSING:
            raise _wrong(frame, f"has no {name}")
        try:
            values[name] = value if value is wanted.default else wanted.check(value)
        except ValueError as error:
            raise _wrong(frame, f"has {name} {_abbreviated(value)}; {error}") from None
    if fields is not rule.fields:
        values["key"] = AttemptKey(values.pop("job"), values.pop("attempt"))
    return rule.makes(**values, **_attachments(frame, rule, program=program))


_KEY_FIELDS: Final = {"job": Field("name", JOB_MAX), "attempt": _ONE_OR_MORE}


def _wrong(frame: Frame, what: str) -> BrokenProtocol:
    article = "an" if frame.kind[0] in "aeiou" else "a"
    return BrokenProtocol(f"{article} {frame.kind} frame {what}")


def _attachments(frame: Frame, rule: FrameRule, *, program: bool) -> dict[str, Any]:
    """Returns the frame's body and its descriptor, where frames of its kind have any."""
    if frame.fd is None and rule.descriptor == "must":
        raise _wrong(frame, "came without a descriptor")
    if frame.fd is not None and rule.descriptor == "no":
        raise _wrong(frame, "came with a descriptor")
    if frame.body and (rule.body == "no" or (frame.fd is not None)):
        raise _wrong(frame, "came with a body")
    values: dict[str, Any] = {}
    if rule.body != "no":
        if not frame.body and frame.fd is None and _needs_body(frame, rule):
            raise _wrong(frame, "came without a body")
        if frame.body and not (program or rule.raw) and len(frame.body) <= INLINE_MAX:
            require_json(frame.body)  # a larger one was checked when it was read, in a thread
        values["body"] = frame.body
    if rule.descriptor != "no":
        values["fd"] = frame.fd
    return values


def is_json(kind: str) -> bool:
    """Returns whether the body of a frame of this kind must be JSON."""
    rule = FRAME_RULES.get(kind)
    return rule is None or not rule.raw


def _needs_body(frame: Frame, rule: FrameRule) -> bool:
    if rule.makes is Done:
        return frame.fields.get("has_output", True) is True and frame.fields.get("in_file") is not True
    return rule.makes is not Failed


_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
"""Checks the syntax without making values."""


def require_json(body: bytes) -> None:
    """Raises BrokenProtocol. A body that is nested deeper than the parser follows passes: a handler may
    return that, and it is refused where it is parsed."""
    try:
        body.decode()
        _JSON.decode(body)
    except RecursionError:
        return
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise BrokenProtocol(f"a body of {len(body)} bytes is not JSON: {error!s:.200}") from None


def require_timely(message: WorkerMessage, *, setup_ended: bool, known: Collection[AttemptKey]) -> None:
    """Raises BrokenProtocol for a message that may not be sent now. `setup_ended`: the worker has reported
    how its setup ended. `known` are the jobs that it received and has not ended."""
    match message:
        case Ready() | SetupFailed():
            if setup_ended:
                raise BrokenProtocol("it reported for a second time how its setup ended")
            return
        case Slots() | Retire(key=None):
            if not setup_ended:
                raise BrokenProtocol("it sent a message before it was ready")
            if isinstance(message, Retire) and message.lost:
                raise BrokenProtocol("a retire frame with lost names no job")
            return
        case Unfit() | Fit():
            raise BrokenProtocol("it spoke of its own health, which the agent probes")
    assert message.key is not None
    if message.key not in known:
        raise BrokenProtocol(f"it spoke of job {message.key.job:.80}, which is not its own")


def _abbreviated(value: object) -> str:
    """Returns the start of a value that may be huge. An int of many digits cannot be written at all."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"of {value.bit_length()} bits"
    return ascii(value)[:80]
