"""What must hold of the outbox. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

from stoker.wire.messages import (
    AttemptKey,
    Chunk,
    Outcome,
    Progress,
    Refused,
    Released,
    Usage,
    WorkerState,
)

J1 = AttemptKey("j1", 1)


def outcome(job: str = "j1") -> Outcome:
    return Outcome(job, 1, "w1", "completed", output=b"1")


def chunk(n: int, job: str = "j1", value: bytes = b"1") -> Chunk:
    return Chunk(job, 1, n, value)


def numbers(batch: Any) -> list[int]:
    return [report.number for report in batch]


def filled(m: Any, *bodies: Any, at: float = 0.0) -> Any:
    box = m.Outbox()
    for body in bodies:
        box = (m.add_progress if isinstance(body, Progress) else m.add)(box, body, at)
    return box


def reports_are_numbered_sent_once_and_kept(m: Any) -> None:
    box = filled(m, chunk(0), chunk(1), outcome())
    box, batch = m.take(box, 0.0)
    assert numbers(batch) == [1, 2, 3]
    assert m.take(box, 0.0)[1] == ()
    assert m.first_unacked(box) == 1
    box, again = m.take(m.reconnected(box), 0.0)
    assert again == batch


def an_ack_is_cumulative(m: Any) -> None:
    box, _ = m.take(filled(m, chunk(0), chunk(1), outcome()), 0.0)
    box = m.ack(box, 2)
    assert [item.number for item in box.items] == [3]
    assert m.first_unacked(box) == 3
    assert m.ack(box, 2) == box
    box = m.ack(box, 3)
    assert (box.items, box.size, m.first_unacked(box)) == ((), 0, 4)
    assert numbers(m.take(m.add(box, outcome("j2"), 1.0), 1.0)[1]) == [4]


def a_batch_is_bounded_but_never_empty(m: Any) -> None:
    box = filled(m, *(chunk(n, value=b"x" * 90_000) for n in range(5)))
    sizes = []
    while True:
        box, batch = m.take(box, 0.0)
        if not batch:
            break
        sizes.append(len(batch))
        sent = {report.number for report in batch}
        assert sum(item.size for item in box.items if item.number in sent) <= 200 * 1024
    assert sizes == [2, 2, 1]
    box, batch = m.take(filled(m, chunk(0, value=b"x" * 900_000), chunk(1)), 0.0)
    assert numbers(batch) == [1]


def progress_is_coalesced_and_paced(m: Any) -> None:
    box = filled(m, Progress("j1", 1, b"1"))
    box, batch = m.take(box, 0.0)
    assert [report.body.value for report in batch] == [b"1"]
    for n in range(2, 9):
        box = m.add_progress(box, Progress("j1", 1, str(n).encode()), 0.1)
    assert m.take(box, 0.9)[1] == ()
    assert m.wake_at(box) == 1.0
    box, batch = m.take(box, 1.0)
    assert [report.body.value for report in batch] == [b"8"]
    assert m.wake_at(box) is None
    # another attempt has a pace of its own
    box = m.add_progress(box, Progress("j2", 1, b"a"), 1.1)
    assert len(m.take(box, 1.1)[1]) == 1


def the_last_progress_leaves_ahead_of_its_outcome(m: Any) -> None:
    box = filled(m, Progress("j1", 1, b"1"))
    box, _ = m.take(box, 0.0)
    box = m.add_progress(box, Progress("j1", 1, b"2"), 0.1)
    box = m.add(box, outcome(), 0.2)
    box, batch = m.take(box, 0.2)
    assert [type(report.body) for report in batch] == [Progress, Outcome]
    assert batch[0].body.value == b"2"
    assert box.progress == ()


def old_progress_is_not_sent_again(m: Any) -> None:
    box, _ = m.take(filled(m, Progress("j1", 1, b"1"), Progress("j2", 1, b"1")), 0.0)
    box = m.add_progress(box, Progress("j1", 1, b"2"), 0.5)
    _, batch = m.take(m.reconnected(box), 2.0)
    assert [(report.body.job, report.body.value) for report in batch] == [("j2", b"1"), ("j1", b"2")]
    box = m.add(box, outcome("j2"), 0.6)
    _, batch = m.take(m.reconnected(box), 2.0)
    assert ("j2", b"1") not in [(r.body.job, getattr(r.body, "value", None)) for r in batch]


def dropped_is_dropped(m: Any) -> None:
    box = filled(m, chunk(0), chunk(0, "j2"), Progress("j1", 1, b"1"), WorkerState("w1", "e", 1, "ready"))
    box = m.drop(box, J1)
    assert [getattr(item.body, "job", "") for item in box.items] == ["j2", ""]
    assert box.progress == ()
    assert box.size == sum(item.size for item in box.items)


def the_disk_is_for_what_waits_long(m: Any) -> None:
    box = filled(m, WorkerState("w1", "e", 1, "ready"), Released("j1", 1))
    assert m.disk_at(box) is None
    box = m.add(box, outcome(), 5.0)
    assert m.disk_at(box) == 6.0
    assert not m.due_for_disk(box, 5.9)
    assert m.due_for_disk(box, 6.0)
    assert m.to_save(box) == (outcome(),)
    box = m.saved(box, 6.0)
    assert m.disk_at(box) is None
    assert not m.has_unsaved(box)
    # not again and again: at most once a second
    box = m.add(box, chunk(0, "j3"), 6.0)
    box = m.saved(box, 7.5)
    box = m.add(box, chunk(1, "j3"), 6.4)
    assert m.disk_at(box) == 8.5


def what_was_returned_outlives_the_agent(m: Any) -> None:
    back = Refused("j1", 1, "the agent is shutting down", at_once=True)
    assert m.to_save(filled(m, Released("j1", 1), back)) == (back,)


def what_is_acknowledged_leaves_the_disk(m: Any) -> None:
    box = m.saved(filled(m, outcome()), 1.0)
    assert not m.is_stale(box)
    box = m.ack(box, 1)
    assert m.is_stale(box)
    assert m.disk_at(box) == 2.0
    assert m.to_save(box) == ()
    assert m.disk_at(m.saved(box, 2.0)) is None


def a_new_boot_renumbers_what_it_finds(m: Any) -> None:
    box = m.reloaded([chunk(0), outcome()], 3.0)
    assert [item.number for item in box.items] == [1, 2]
    assert not m.has_unsaved(box)
    assert m.disk_at(box) is None
    assert m.disk_at(m.reloaded([], 3.0)) is None


def a_full_outbox_says_so_until_it_is_half_empty(m: Any) -> None:
    box = filled(m, *(chunk(n) for n in range(m.FULL_COUNT)))
    assert box.full
    assert not filled(m, *(chunk(n) for n in range(m.FULL_COUNT - 1))).full
    assert m.take(m.ack(box, 1), 0.0)[0].full
    half = m.ack(box, m.FULL_COUNT // 2)
    assert not half.full
    assert not m.add(half, chunk(0), 0.0).full
    big = filled(m, *(chunk(n, value=b"x" * (8 << 20)) for n in range(4)))
    assert big.full
    assert m.ack(big, 1).full
    assert not m.ack(big, 3).full


def used(n: int, began: int, ended: int, owner: str = "w1", state: str = "idle") -> Usage:
    return Usage(owner, "b1", n, "worker", state, began * 60_000, ended * 60_000, "echo", 1)


def usages(box: Any) -> list[tuple[str, int, int, int]]:
    bodies = (item.body for item in box.items)
    return [(one.owner, one.n, one.began_ms // 60_000, one.ended_ms // 60_000) for one in bodies]


def usage_that_was_never_sent_grows(m: Any) -> None:
    box = filled(m, used(1, 1, 2), used(1, 1, 2, "w2"), used(2, 2, 3), used(2, 2, 3, "w2"), used(3, 3, 4))
    assert usages(box) == [("w2", 1, 1, 3), ("w1", 1, 1, 4)]
    assert box.size == sum(item.size for item in box.items)
    box, _ = m.take(box, 0.0)
    box = m.add(m.reconnected(box), used(4, 4, 5), 1.0)
    assert usages(box)[1:] == [("w1", 1, 1, 4), ("w1", 4, 4, 5)]
    box = m.add(m.reloaded([used(1, 1, 2)], 0.0), used(2, 2, 3), 1.0)
    assert usages(box) == [("w1", 1, 1, 2), ("w1", 2, 2, 3)]


def usage_grows_without_gaps_and_within_its_hour(m: Any) -> None:
    apart = [used(1, 1, 2), used(2, 3, 4), used(3, 4, 5, state="running"), used(4, 5, 6)]
    assert len(filled(m, *apart).items) == 4
    assert len(filled(m, used(1, 59, 60), used(2, 60, 61)).items) == 2
    assert len(filled(m, used(1, 58, 59), used(2, 59, 60)).items) == 1


def waits(*percents: int, worker: str = "w1") -> list[WorkerState]:
    return [WorkerState(worker, "e", 1, "starting", waits_for=f"fetches: {one}%") for one in percents]


def of_what_a_worker_waits_for_the_newest_that_was_not_sent_is_kept(m: Any) -> None:
    started = WorkerState("w1", "e", 1, "starting")
    box = filled(m, *waits(1, 2), *waits(7, worker="w2"), *waits(3), started, *waits(4, 5))
    kept = [*waits(7, worker="w2"), *waits(3), started, *waits(5)]
    assert [item.body for item in box.items] == kept
    assert box.size == sum(item.size for item in box.items)
    box, batch = m.take(box, 0.0)
    assert numbers(batch) == [3, 4, 5, 7]
    box = m.add(m.reconnected(box), *waits(6), 1.0)
    assert [item.body for item in box.items] == [*kept, *waits(6)]


def usage_outlives_the_agent(m: Any) -> None:
    box = filled(m, WorkerState("w1", "e", 1, "ready"), used(1, 1, 2))
    assert m.to_save(box) == (used(1, 1, 2),)
    assert m.disk_at(box) == 1.0


def by_random_walks(m: Any, lives: int = 150) -> None:
    for seed in range(lives):
        walk(m, Random(seed).choice)


def walk(m: Any, draw: Any, steps: int = 50) -> None:  # noqa: C901  # a script of nine events
    """A control plane with a memory: nothing durable is lost, nothing arrives out of order."""
    box, at, last = m.Outbox(), 0.0, 0
    added: set[int] = set()
    committed: dict[int, Any] = {}
    shown: dict[str, dict[int, float]] = {"j1": {}, "j2": {}}
    for _ in range(steps):
        at += draw([0.0, 0.1, 0.5, 2.0])
        match draw(["chunk", "chunk", "progress", "outcome", "take", "take", "ack", "cut", "save"]):
            case "chunk":
                box = m.add(box, chunk(len(added), value=b"x" * draw([1, 300])), at)
                added.add(box.next - 1)
            case "progress":
                box = m.add_progress(box, Progress(draw(["j1", "j2"]), 1, str(at).encode()), at)
            case "outcome":
                box = m.add(box, outcome(f"other-{len(added)}"), at)
                added.add(box.next - 1)
            case "take":
                box, batch = m.take(box, at, 800)
                for report in batch:
                    assert report.number > last, "in order, each once on a connection"
                    last = report.number
                    assert committed.setdefault(report.number, report.body) is report.body
            case "ack":
                box = m.ack(box, last)
            case "cut":
                box, last = m.reconnected(box), 0
            case "save":
                box = m.saved(box, at)
                assert not m.has_unsaved(box)
        assert box.size == sum(item.size for item in box.items)
        assert added <= committed.keys() | {item.number for item in box.items}, "nothing durable is lost"
        for item in box.items:
            if isinstance(item.body, Progress):
                shown[item.body.job][item.number] = item.at
    for times in shown.values():
        at_each = [times[number] for number in sorted(times)]
        assert all(b - a >= 1.0 - 1e-9 for a, b in pairwise(at_each)), "at most once a second"


RANDOM = [lambda m: by_random_walks(m, 40)]

MUTANTS = [
    (
        "given back in memory only",
        "Outcome | Chunk | Save | Usage | Refused)",
        "Outcome | Chunk | Save | Usage)",
    ),
    (
        "sent and forgotten",
        "box.items, box.size, sent,",
        "box.items[len(batch) :], 0, sent,",
    ),
    ("nothing is sent again", "return _with(replace(box, sent=0), stays)", "return _with(box, stays)"),
    ("an ack covers one more", "if item.number > number))", "if item.number > number + 1))"),
    ("a big report is stuck", "if batch and size > limit:", "if size > limit:"),
    ("no limit", "if batch and size > limit:", "if False:"),
    (
        "progress unpaced",
        "PendingProgress(pending.key, at + PROGRESS_S, None)",
        "PendingProgress(pending.key, at, None)",
    ),
    (
        "the first progress stays",
        "replace(known, value=progress.value)",
        "replace(known, value=known.value or progress.value)",
    ),
    ("the last progress is lost", "if pending.key == key and pending.value is not None:", "if False:"),
    ("the disk never empties", "return earliest if is_stale(box) else None", "return None"),
    (
        "everything on disk",
        "return isinstance(body, Outcome | Chunk | Save | Usage | Refused)",
        "return True",
    ),
    (
        "usage dies with the agent",
        "isinstance(body, Outcome | Chunk | Save | Usage | Refused)",
        "isinstance(body, Outcome | Chunk | Save | Refused)",
    ),
    ("what was sent grows", "if item.number <= box.ever_sent:", "if item.number <= box.sent:"),
    ("each wait is kept", "return _with(box, tuple(other", "return box; _with(box, tuple(other"),
    ("the wait of another is replaced", "isinstance(body, WorkerState) and body.worker == worker:", "True:"),
    ("a wait that was sent is replaced", "if item.number > box.ever_sent and body", "if body"),
    ("what is no wait is replaced", "box.ever_sent and body.waits_for:", "box.ever_sent:"),
    ("what an earlier boot sent grows", "box = Outbox(ever_sent=len(bodies))", "box = Outbox()"),
    ("a gap is closed", "(before.ended_ms, before.state) == (span.began_ms, span.state)", "True"),
    ("hours are joined", "span.state) and same_hour", "span.state)"),
    (
        "another worker's grows",
        "isinstance(before, Usage) and before.owner == span.owner",
        "isinstance(before, Usage)",
    ),
    ("what grew is told twice", "return _with(box, rest), replace", "return box, replace"),
    ("no pace for the disk", "return max(unsaved + DISK_S, earliest)", "return unsaved + DISK_S"),
    (
        "numbers begin anew",
        "return replace(box, saved=box.ever_sent)",
        "return box",
    ),
    (
        "no hysteresis",
        "full = box.full and (size > FULL_BYTES // 2 or len(items) > FULL_COUNT // 2)",
        "full = size >= FULL_BYTES or len(items) >= FULL_COUNT",
    ),
]
