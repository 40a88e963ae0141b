"""The messages of a node that control accepts: only those about things that control assigned to that node.

    message ──> is it about a worker, an attempt, a pod, a volume, a device assigned to the node?
             └── are its keys below the attempt's prefix, its numbers fit for a column, its JSON JSON?
                  ├── yes: the message, cleaned ──> it may change the state of control
                  └── no: InvalidReport, which names the field ──> one line in the log, and nothing else

docs/security.md has the same rules as a table. Pure: `Assignments` looks up what was assigned to the node;
time, the store and the log are the caller's. `check_reports` checks every kind of report, `paid` who pays
usage, `printed` the lines of a log; `control.rules.nodes.hello` checks a Hello and a beat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import replace

from stoker.control.rules.nodes.field_limits import AMOUNT_MAX, ANY, FIELDS, NAME, NAME_MAX, STAGES_MAX
from stoker.wire.messages import (
    CASE_MAX,
    Artifact,
    AttemptKey,
    Chunk,
    LogLines,
    Outcome,
    PodState,
    Price,
    Progress,
    Ref,
    Refused,
    Released,
    Report,
    Save,
    Span,
    StartStage,
    Uploading,
    Usage,
    VolumeUsed,
    WorkerState,
)

T = TypeVar("T")

INLINE_MAX = 1024 * 1024
"""Bytes of an output, a chunk or a progress value within a message; larger ones are in the object store."""

SAVE_INLINE_MAX = 64 * 1024
"""Bytes of a save within a message: what a runtime sends there, and room."""

LISTED_MAX = 8192
"""Of each kind of thing that a Hello names. An agent's outbox holds half as many reports."""

DEVICES_MAX = 256

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,255}")
_LARGE_EXPONENT = re.compile(rb"[eE]\+?[0-9]{3}")
_JSON = msgspec.json.Decoder(msgspec.Raw)
"""Checks the syntax without making values."""

_USAGE = {"worker": frozenset({"starting", "running", "idle"}), "pod": frozenset({"running"})}


class InvalidReport(Exception):
    """The node may not report this; the text names the field, the value, and what is allowed."""


class AssignedWorker(Struct, frozen=True):
    """A worker that control assigned to the node. `slots`: how many jobs the worker may take at once, as its
    endpoint allows."""

    endpoint: str
    version: int
    slots: int
    devices: tuple[str, ...] = ()


class AssignedAttempt(Struct, frozen=True):
    """An attempt that control assigned to the node. `prefix`: under which all its uploads are; "" where that
    is not known any more, and nothing may be named. `worker` and `prices` are None where they are not known
    any more. With `own_bucket` its files are in its caller's bucket, where control deletes nothing."""

    prefix: str
    worker: str | None = None
    own_bucket: bool = False
    prices: tuple[Price, ...] | None = None


class Assignments(Protocol):
    """The workers, attempts, pods and volumes that control assigned to one node."""

    def worker(self, worker: str) -> AssignedWorker | None: ...

    @property
    def attempts(self) -> Mapping[AttemptKey, AssignedAttempt]: ...

    def pod(self, pod: str) -> bool: ...

    def volume(self, volume: str) -> bool | None:
        """Returns whether the volume's folder is to be deleted; None for one that the node was not sent."""


# ---- reports ------------------------------------------------------------------------------------


def check_reports(
    reports: Iterable[Report], assigned: Assignments
) -> tuple[list[Report], list[tuple[Report, str]]]:
    """Returns the reports that may be acted upon, cleaned, in order; and those that may not, each with the
    reason."""
    good: list[Report] = []
    rejected: list[tuple[Report, str]] = []
    for report in reports:
        try:
            body = _RULES[type(report.body)](checked(report.body), assigned)
        except InvalidReport as error:
            rejected.append((report, str(error)))
        else:
            good.append(report if body is report.body else Report(report.number, body))
    return good, rejected


def _progress(report: Progress, assigned: Assignments) -> Progress:
    _attempt(report, assigned)
    _json("value", report.value)
    return report


def _chunk(report: Chunk, assigned: Assignments) -> Chunk:
    attempt = _attempt(report, assigned)
    if report.ref is None:
        _json("value", report.value)
    else:
        _ref("ref", report.ref, attempt)
        if report.value:
            raise InvalidReport(f"value must be empty where there is a ref, not {short_repr(report.value)}")
    return report


def _save(report: Save, assigned: Assignments) -> Save:
    attempt = _attempt(report, assigned)
    if report.ref is not None:
        _ref("ref", report.ref, attempt)
    most = 0 if report.ref is not None else SAVE_INLINE_MAX
    if len(report.state) > most:
        raise InvalidReport(f"state must have at most {most} bytes, not {len(report.state)}")
    if report.content and not NAME.fullmatch(report.content):
        raise no_name("content", report.content)
    return report


def _of_attempt(report: T, assigned: Assignments) -> T:
    _attempt(report, assigned)
    return report


def _outcome(report: Outcome, assigned: Assignments) -> Outcome:
    attempt = _attempt(report, assigned)
    if attempt.worker is not None and report.worker != attempt.worker:
        raise InvalidReport(
            f"worker must be the attempt's, {attempt.worker}, not {short_repr(report.worker)}"
        )
    if report.output_ref is not None:
        _ref("output_ref", report.output_ref, attempt)
    if report.artifacts:
        _artifacts(report.artifacts, attempt)
    if report.spans:
        _spans(report.spans, attempt.prices)
    if report.log_at_ms:
        _times("log_at_ms", report.log_at_ms, report.log)
    if report.case and (len(report.case) > CASE_MAX or json_flaw(report.case) is not None):
        report = replace(report, case=b"")  # the end of the job matters more
    if report.output is None:
        return report
    if len(report.output) > INLINE_MAX:
        flaw: str | None = f"of {len(report.output)} bytes came in a message, which may have {INLINE_MAX}"
    else:
        flaw = json_flaw(report.output)
    if flaw is None:
        return report
    # No caller could read it: its job fails, as another try would bring it again.
    error = report.error or f"the output {flaw}"
    end = "failed" if report.end == "completed" else report.end
    return replace(report, end=end, output=None, error=error, retryable=False)


def _artifacts(artifacts: tuple[Artifact, ...], attempt: AssignedAttempt) -> None:
    keys: set[str] = set()
    for n, artifact in enumerate(artifacts):
        name = f"artifacts[{n}]"
        if not attempt.own_bucket:
            _key(f"{name}.key", artifact.key, attempt)
        if artifact.key in keys:
            raise InvalidReport(f"{name}.key {short_repr(artifact.key)} is named twice")
        keys.add(artifact.key)
        checked(artifact, f"{name}.")


def _spans(spans: tuple[Span, ...], prices: tuple[Price, ...] | None) -> None:
    seen: set[tuple[str, str]] = set()
    for n, span in enumerate(spans):
        name = f"spans[{n}]"
        checked(span, f"{name}.")
        if (span.kind, span.unit) in seen:
            raise InvalidReport(f"{name} is a second one of kind {span.kind} and unit {span.unit}")
        seen.add((span.kind, span.unit))
        if prices is not None:
            price = sum(one.nano_usd for one in prices if one.metric == span.unit)
            if span.nano_usd != span.quantity * price:
                wanted = f"{span.quantity} at {price}"
                raise InvalidReport(f"{name}.nano_usd must be that of {wanted} each, not {span.nano_usd}")


def _worker_state(report: WorkerState, assigned: Assignments) -> WorkerState:
    worker = assigned.worker(report.worker)
    if worker is None:
        raise InvalidReport(f"worker {short_repr(report.worker)} is not one that control gave to this node")
    if worker.endpoint and (report.endpoint, report.version) != (worker.endpoint, worker.version):
        runs = f"version {worker.version} of endpoint {worker.endpoint}"
        raise InvalidReport(
            f"endpoint and version must be the worker's, {runs}, not {short_repr(report.endpoint)}"
        )
    check_slots(report.slots, worker)
    return replace(report, cold_start=checked_stages(report.cold_start)) if report.cold_start else report


def _pod_state(report: PodState, assigned: Assignments) -> PodState:
    if not assigned.pod(report.pod):
        raise InvalidReport(f"pod {short_repr(report.pod)} is not one that control gave to this node")
    few("ports", report.ports, LISTED_MAX)
    for n, port in enumerate(report.ports):
        checked(port, f"ports[{n}].")
    return report


def _volume_used(report: VolumeUsed, assigned: Assignments) -> VolumeUsed:
    goes = assigned.volume(report.volume)
    if goes is None:
        raise InvalidReport(f"volume {short_repr(report.volume)} is not one that control sent to this node")
    if report.gone and not goes:
        raise InvalidReport(f"gone: control did not have this node remove volume {report.volume}")
    return report


def _usage(report: Usage, assigned: Assignments) -> Usage:
    """Checks the report's form. Who pays for the usage is checked later, by `paid`, from the store: the
    worker may have ended long ago."""
    if report.kind not in _USAGE:
        raise InvalidReport(f"kind must be one of {', '.join(_USAGE)}, not {short_repr(report.kind)}")
    if report.state not in _USAGE[report.kind]:
        raise _not_one_of("state", report.state, _USAGE[report.kind])
    few("devices", report.devices, DEVICES_MAX)
    return report


def paid(span: Usage, owner: AssignedWorker | None) -> None:
    """Checks that this node held these devices for that endpoint, or that pod. Raises InvalidReport."""
    if owner is None:
        raise InvalidReport(
            f"owner {short_repr(span.owner)} is not a {span.kind} that control gave to this node"
        )
    if span.kind == "worker" and (span.endpoint, span.version) != (owner.endpoint, owner.version):
        runs = f"version {owner.version} of endpoint {owner.endpoint}"
        raise InvalidReport(
            f"endpoint and version must be the worker's, {runs}, not {short_repr(span.endpoint)}"
        )
    if not set(span.devices) <= set(owner.devices) or len(set(span.devices)) != len(span.devices):
        raise InvalidReport(f"devices must be of {owner.devices}, each once, not {short_repr(span.devices)}")


_RULES: Mapping[type[Any], Callable[[Any, Assignments], Any]] = {
    Progress: _progress,
    Chunk: _chunk,
    Save: _save,
    Uploading: _of_attempt,
    Released: _of_attempt,
    Refused: _of_attempt,
    Outcome: _outcome,
    WorkerState: _worker_state,
    PodState: _pod_state,
    VolumeUsed: _volume_used,
    Usage: _usage,
}


# ---- lines --------------------------------------------------------------------------------------


def printed(report: LogLines, node: str, runs_at: str) -> None:
    """Checks lines of an attempt that a reader follows: they must come from the node that runs it. Raises
    InvalidReport."""
    if node != runs_at:
        which = f"attempt {report.attempt} of job {short_repr(report.job)}"
        raise InvalidReport(f"{which} is not one that control gave to this node")
    checked(report)
    if report.at_ms:
        _times("at_ms", report.at_ms, report.lines)


def _times(name: str, times: tuple[int, ...], lines: tuple[str, ...]) -> None:
    if len(times) != len(lines):
        raise InvalidReport(f"{name} must have a time for each of {len(lines)} lines, not {len(times)}")
    if not 0 <= min(times) <= max(times) <= AMOUNT_MAX:
        raise InvalidReport(f"{name} must be from 0 to {AMOUNT_MAX}, not {min(times)} to {max(times)}")


# ---- fields -------------------------------------------------------------------------------------


def checked(report: T, where: str = "") -> T:
    """Returns the report with its texts cleaned, if its fields hold what they may. Raises InvalidReport."""
    rules = FIELDS.get(type(report), ANY)
    for name, most in rules.numbers.items():
        value = getattr(report, name)
        if value is not None and not 0 <= value <= most:
            raise InvalidReport(f"{where}{name} must be from 0 to {most}, not {value}")
    for name in rules.names:
        value = getattr(report, name)
        if value is not None and not NAME.fullmatch(value):
            raise no_name(f"{where}{name}", value)
    for name, allowed in rules.choices.items():
        value = getattr(report, name)
        if value not in allowed:
            raise _not_one_of(f"{where}{name}", value, allowed)
    changed: dict[str, Any] = {}
    for name, most_characters in rules.texts.items():
        value = getattr(report, name)
        if not value:
            continue
        if isinstance(value, str):
            clean: Any = value.replace("\x00", "\ufffd")[:most_characters]
        else:
            clean = tuple([line.replace("\x00", "\ufffd") for line in value])
        if clean != value:
            changed[name] = clean
    return replace(report, **changed) if changed else report  # type: ignore[type-var]


def _attempt(report: Any, assigned: Assignments) -> AssignedAttempt:
    attempt = assigned.attempts.get(AttemptKey(report.job, report.attempt))
    if attempt is None:
        which = f"attempt {report.attempt} of job {short_repr(report.job)}"
        raise InvalidReport(f"{which} is not one that control gave to this node")
    return attempt


def _ref(name: str, ref: Ref, attempt: AssignedAttempt) -> None:
    _key(f"{name}.key", ref.key, attempt)
    checked(ref, f"{name}.")


def _key(name: str, key: str, attempt: AssignedAttempt) -> None:
    """Checks that a key names one file right below the prefix: a store on a file system would follow `..`."""
    file = key.removeprefix(attempt.prefix) if attempt.prefix and key.startswith(attempt.prefix) else ""
    if not _FILE.fullmatch(file):
        raise InvalidReport(f"{name} must name a file right below {attempt.prefix!r}, not {short_repr(key)}")


def check_slots(slots: int | None, worker: AssignedWorker) -> None:
    if slots is not None and slots > worker.slots:
        raise InvalidReport(f"slots must be at most {worker.slots}, as the endpoint allows, not {slots}")


def checked_stages(stages: Sequence[StartStage]) -> tuple[StartStage, ...]:
    few("cold_start", stages, STAGES_MAX)
    return tuple(checked(one, f"cold_start[{n}].") for n, one in enumerate(stages))


def _json(name: str, value: bytes) -> None:
    if len(value) > INLINE_MAX:
        raise InvalidReport(f"{name} must have at most {INLINE_MAX} bytes, not {len(value)}")
    flaw = json_flaw(value)
    if flaw is not None:
        raise InvalidReport(f"{name} {flaw}")


def json_flaw(text: bytes) -> str | None:
    """Returns why not every parser would accept these bytes as JSON, as the end of a sentence; None where
    each would.

    Stricter than Python's own reader: no NaN, no Infinity, no number out of a double's range, only UTF-8, and
    no lone surrogate. Cheap: no value is built.
    """
    try:
        _JSON.decode(text)
        text.decode("utf-8")
        if _LARGE_EXPONENT.search(text):
            orjson.loads(text)
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}"
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        return f"is not JSON: {error}"
    return None


def few(name: str, values: Collection[Any], most: int) -> None:
    if len(values) > most:
        raise InvalidReport(f"{name} must be at most {most}, not {len(values)}")


def no_name(name: str, value: str) -> InvalidReport:
    allowed = f"1 to {NAME_MAX} characters without control characters"
    return InvalidReport(f"{name} must be {allowed}, not {short_repr(value)}")


def _not_one_of(name: str, value: str, allowed: Collection[str]) -> InvalidReport:
    return InvalidReport(f"{name} must be one of {', '.join(sorted(allowed))}, not {short_repr(value)}")


def short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
