"""The outbox: reports that control has not acknowledged, in order, numbered by this boot of the agent.

Pure: no clock, no disk, no stream. The shell is `agent.jobs.reports.reports`; the file is
`agent.jobs.reports.outbox_file`.

- Everything is kept until a cumulative acknowledgement covers it, and sent again after a reconnect.
- Progress is a last value: while it waits it is replaced, and it gets a number when it leaves, at most once a
  second for each attempt. The last value waiting leaves ahead of the attempt's outcome.
- Outcomes, chunks, saves, usage and what was given back are worth the disk: the rest says nothing to control
  once this agent has died.
- Usage that follows on from a span that was never sent makes that one longer: an outage of control costs few.
- When it is full, the shell stops reading its workers; when it is half empty, it reads on.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stoker.wire.messages import (
    AttemptKey,
    Chunk,
    Outcome,
    PodState,
    Progress,
    Refused,
    Released,
    Report,
    ReportBody,
    Save,
    Uploading,
    Usage,
    VolumeUsed,
    WorkerState,
)

BATCH_BYTES = 200 * 1024
"""One message on the wire is at most 256 KiB; a single larger report is cut into fragments there."""

PROGRESS_S = 1.0
DISK_S = 1.0
HOUR_MS = 3_600_000
FULL_BYTES = 32 * 1024 * 1024
FULL_COUNT = 4096
DISK_BYTES_PER_S = 8 * 1024 * 1024
"""How much of the disk a control outage may keep busy: a large outbox is written less often."""

_OVERHEAD = 160


class Item(Struct, frozen=True):
    """A report in the outbox. `size`: about how many bytes it takes on the wire."""

    number: int
    at: float
    size: int
    body: ReportBody


class PendingProgress(Struct, frozen=True):
    """An attempt's progress: `value` waits to leave, not before `due`; None: nothing waits."""

    key: AttemptKey
    due: float
    value: bytes | None


class Outbox(Struct, frozen=True):
    """Several are made for each job, most of them without `replace`: it costs more than all the rest.

    `sent` is the highest number sent on this connection, `ever_sent` on any, `saved` the highest on disk.
    0: none. `full`: it was, and has not been half empty since.
    """

    next: int = 1
    items: tuple[Item, ...] = ()
    size: int = 0
    sent: int = 0
    progress: tuple[PendingProgress, ...] = ()
    saved: int = 0
    saved_at: float = float("-inf")
    ever_sent: int = 0
    full: bool = False


def key_of(body: ReportBody) -> AttemptKey | None:
    """Returns the attempt that a report is about, if any."""
    if isinstance(body, WorkerState | PodState | VolumeUsed | Usage):
        return None
    return AttemptKey(body.job, body.attempt)


def durable(body: ReportBody) -> bool:
    """Returns whether the report means something to control after the agent has died."""
    return isinstance(body, Outcome | Chunk | Save | Usage | Refused)


def reloaded(bodies: Sequence[ReportBody], at: float) -> Outbox:
    """Returns the outbox of a new boot. The reports that an earlier boot left on disk get new numbers; some
    of them may have been sent before."""
    box = Outbox(ever_sent=len(bodies))
    for body in bodies:
        box = add(box, body, at)
    return replace(box, saved=box.ever_sent)


# ---- filling ------------------------------------------------------------------------------------


def add(box: Outbox, body: ReportBody, at: float) -> Outbox:
    """Progress has `add_progress`: here it would be numbered at once."""
    if box.progress and isinstance(body, Outcome):
        box = _end_progress(box, AttemptKey(body.job, body.attempt), at)
    if isinstance(body, Usage):
        box, body = _joined(box, body)
    if isinstance(body, WorkerState) and body.waits_for:
        box = _without_older(box, body.worker)
    size = _OVERHEAD
    match body:
        case Progress(value=value) | Chunk(value=value) | Save(state=value):
            size += len(value)
        case Outcome(output=output, error=error, spans=spans, artifacts=artifacts, log=log, case=noted):
            size += _OVERHEAD * (len(spans) + 2 * len(artifacts)) + len(output or b"") + len(noted)
            size += 4 * (len(error or "") + sum(map(len, log))) + 8 * len(log)
        case WorkerState(reason=reason, log_tail=tail) | PodState(reason=reason, log_tail=tail):
            size += 4 * (len(reason) + sum(map(len, tail)))
        case Refused(reason=reason):
            size += 4 * len(reason)
        case Uploading() | Released() | VolumeUsed() | Usage():
            pass
    items = (*box.items, Item(box.next, at, size, body))
    size += box.size
    full = box.full or size >= FULL_BYTES or len(items) >= FULL_COUNT
    was = box.sent, box.progress, box.saved, box.saved_at, box.ever_sent
    return Outbox(box.next + 1, items, size, *was, full)


def _joined(box: Outbox, span: Usage) -> tuple[Outbox, Usage]:
    """Joins a span with the one before it. A span that may have been sent stays as it is: control knows it by
    its n. A span that is on the disk still grows: should the disk tell of it, too, control takes the longer
    one."""
    for item in reversed(box.items):
        before = item.body
        if item.number <= box.ever_sent:
            break
        if isinstance(before, Usage) and before.owner == span.owner:
            if not _goes_on(before, span):
                break
            rest = tuple(other for other in box.items if other is not item)
            return _with(box, rest), replace(span, n=before.n, began_ms=before.began_ms)
    return box, span


def _without_older(box: Outbox, worker: str) -> Outbox:
    """Removes an unsent older state of the worker. What a worker waits for changes every few seconds, also
    while control is away: of the unsent states, only the newest is kept."""
    for item in reversed(box.items):
        body = item.body
        if isinstance(body, WorkerState) and body.worker == worker:
            if item.number > box.ever_sent and body.waits_for:
                return _with(box, tuple(other for other in box.items if other is not item))
            break
    return box


def _goes_on(before: Usage, span: Usage) -> bool:
    same_hour = before.began_ms // HOUR_MS == (span.ended_ms - 1) // HOUR_MS
    return (before.ended_ms, before.state) == (span.began_ms, span.state) and same_hour


def add_progress(box: Outbox, progress: Progress, at: float) -> Outbox:
    key = AttemptKey(progress.job, progress.attempt)
    known = next((pending for pending in box.progress if pending.key == key), PendingProgress(key, at, None))
    others = tuple(pending for pending in box.progress if pending.key != key)
    return replace(box, progress=(*others, replace(known, value=progress.value)))


def _end_progress(box: Outbox, key: AttemptKey, at: float) -> Outbox:
    for pending in box.progress:
        if pending.key == key and pending.value is not None:
            box = add(box, Progress(key.job, key.attempt, pending.value), at)
    return replace(box, progress=tuple(pending for pending in box.progress if pending.key != key))


# ---- sending ------------------------------------------------------------------------------------


def reconnected(box: Outbox) -> Outbox:
    """Returns the outbox for a new connection: all of it is sent again, except progress that a newer report
    replaces."""
    newer = {pending.key for pending in box.progress if pending.value is not None}
    newer |= {key for item in box.items if isinstance(item.body, Outcome) and (key := key_of(item.body))}
    stays = tuple(i for i in box.items if not (isinstance(i.body, Progress) and key_of(i.body) in newer))
    return _with(replace(box, sent=0), stays)


def take(box: Outbox, at: float, limit: int = BATCH_BYTES) -> tuple[Outbox, tuple[Report, ...]]:
    """Takes the next batch: what was not sent on this connection, in order, up to the limit, at least one
    report."""
    if box.progress:
        box = _number_progress(box, at)
    batch: list[Report] = []
    size = 0
    start = len(box.items)
    while start and box.items[start - 1].number > box.sent:  # numbers ascend: what was not sent is a tail
        start -= 1
    for item in box.items[start:]:
        size += item.size
        if batch and size > limit:
            break
        batch.append(Report(item.number, item.body))
    if not batch:
        return box, ()
    sent = batch[-1].number
    ever_sent = max(sent, box.ever_sent)
    was = box.progress, box.saved, box.saved_at
    return Outbox(box.next, box.items, box.size, sent, *was, ever_sent, box.full), tuple(batch)


def _number_progress(box: Outbox, at: float) -> Outbox:
    due = tuple(pending for pending in box.progress if pending.value is not None and pending.due <= at)
    for pending in due:
        box = add(box, Progress(pending.key.job, pending.key.attempt, pending.value or b""), at)
    after = tuple(
        PendingProgress(pending.key, at + PROGRESS_S, None) if pending in due else pending
        for pending in box.progress
    )
    return replace(box, progress=after)


def wake_at(box: Outbox) -> float | None:
    """Returns when progress that waits may be sent."""
    return min((pending.due for pending in box.progress if pending.value is not None), default=None)


# ---- emptying -----------------------------------------------------------------------------------


def ack(box: Outbox, number: int) -> Outbox:
    """Removes every report up to `number`, all of which control has committed."""
    if not box.items or box.items[0].number > number:
        return box
    return _with(box, tuple(item for item in box.items if item.number > number))


def drop(box: Outbox, key: AttemptKey) -> Outbox:
    """Drops the reports of this attempt, of which control wants to hear nothing."""
    left = tuple(pending for pending in box.progress if pending.key != key)
    stays = tuple(item for item in box.items if key_of(item.body) != key)
    return _with(replace(box, progress=left), stays)


def without_saves(box: Outbox) -> Outbox:
    """Drops the saves, for a control that does not take any."""
    if not any(isinstance(item.body, Save) for item in box.items):
        return box
    return _with(box, tuple(item for item in box.items if not isinstance(item.body, Save)))


def _with(box: Outbox, items: tuple[Item, ...]) -> Outbox:
    size = sum(item.size for item in items)
    full = box.full and (size > FULL_BYTES // 2 or len(items) > FULL_COUNT // 2)
    return Outbox(box.next, items, size, box.sent, box.progress, box.saved, box.saved_at, box.ever_sent, full)


# ---- the disk -----------------------------------------------------------------------------------


def disk_at(box: Outbox) -> float | None:
    """Returns when the file must be written: a durable report waits for an ack too long, or nothing in the
    file is worth keeping."""
    unsaved = min(
        (item.at for item in box.items if item.number > box.saved and durable(item.body)), default=None
    )
    earliest = box.saved_at + max(DISK_S, box.size / DISK_BYTES_PER_S)
    if unsaved is not None:
        return max(unsaved + DISK_S, earliest)
    return earliest if is_stale(box) else None


def due_for_disk(box: Outbox, at: float) -> bool:
    due = disk_at(box)
    return due is not None and at >= due


def is_stale(box: Outbox) -> bool:
    """Returns whether there is something on disk, and none of it is worth keeping any more."""
    return box.saved > 0 and not any(durable(item.body) for item in box.items)


def has_unsaved(box: Outbox) -> bool:
    return any(item.number > box.saved and durable(item.body) for item in box.items)


def to_save(box: Outbox) -> tuple[ReportBody, ...]:
    return tuple(item.body for item in box.items if durable(item.body))


def saved(box: Outbox, at: float) -> Outbox:
    """Returns the outbox once `to_save` is on disk."""
    last = max((item.number for item in box.items if durable(item.body)), default=0)
    return replace(box, saved=last, saved_at=at)


def first_unacked(box: Outbox) -> int:
    return box.items[0].number if box.items else box.next
