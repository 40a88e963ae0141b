"""What a node is believed: nothing about what it was not given, whatever it says; and what it was."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import asdict, replace

from stoker.control.rules.nodes import validation
from stoker.control.rules.nodes.field_limits import AMOUNT_MAX
from stoker.control.rules.nodes.hello import assigned_workers, check_facts, checked_hello, sampled
from stoker.control.rules.nodes.validation import AssignedAttempt, AssignedWorker, InvalidReport, json_flaw
from stoker.wire import codec
from stoker.wire.messages import (
    Artifact,
    AttemptKey,
    Chunk,
    Device,
    DeviceSample,
    HeldWorker,
    Hello,
    LogLines,
    Outcome,
    PodState,
    PortMapping,
    Price,
    Progress,
    Ref,
    Refused,
    Released,
    Report,
    ReportBody,
    Save,
    Span,
    Uploading,
    Usage,
    VolumeUsed,
    WorkerState,
)
from tests.mutants import mutant
from tests.wire.vocabulary import instances

PREFIX = "echo/job/1/"
KEY = AttemptKey("job", 1)


@dataclass
class Things:
    """What one node was given."""

    workers: dict[str, AssignedWorker] = field(default_factory=dict)
    attempts: dict[AttemptKey, AssignedAttempt] = field(default_factory=dict)
    pods: set[str] = field(default_factory=set)
    volumes: dict[str, bool] = field(default_factory=dict)

    def worker(self, worker: str) -> AssignedWorker | None:
        return self.workers.get(worker)

    def pod(self, pod: str) -> bool:
        return pod in self.pods

    def volume(self, volume: str) -> bool | None:
        return self.volumes.get(volume)


NOTHING = Things()
OWN = Things(
    {"w": AssignedWorker("echo", 1, 4, ("g",))},
    {KEY: AssignedAttempt(PREFIX, "w", prices=(Price("pixel", 20), Price("device_ms", 3)))},
    {"pod"},
    {"vol": False},
)
TRUE: dict[type[Any], Any] = {
    Progress: Progress("job", 1, b"{}"),
    Chunk: Chunk("job", 1, 0, b"", Ref(f"{PREFIX}chunk-0.json", 2_000_000, "ab")),
    Save: Save("job", 1, 0, 1, b"", Ref(f"{PREFIX}save-0", 2_000_000, "ab")),
    Uploading: Uploading("job", 1),
    Released: Released("job", 1),
    Refused: Refused("job", 1, "it is full"),
    Outcome: Outcome(
        "job",
        1,
        "w",
        "completed",
        b'{"a":1}',
        execution_ms=7,
        spans=(Span("execution", "device_ms", 7, 21), Span("output", "pixel", 10, 200)),
        artifacts=(Artifact(f"{PREFIX}0-a.png", 10, "ab", "image/png"),),
        log=("a line",),
    ),
    WorkerState: WorkerState("w", "echo", 1, "ready", slots=4),
    PodState: PodState("pod", 1, 0, "running", ports=(PortMapping(80, 8080, "http"),)),
    VolumeUsed: VolumeUsed("vol", 10),
    Usage: Usage("w", "b", 1, "worker", "running", 1, 2, "echo", 1, ("g",)),
}


def test_there_is_a_true_example_of_every_report() -> None:
    assert set(TRUE) == set(codec.BODIES)


def believed(body: Any, assigned: Any, module: Any = validation) -> Any:
    """The body as it may be acted upon. Raises InvalidReport."""
    good, rejected = module.check_reports([Report(1, body)], assigned)
    if rejected:
        raise module.InvalidReport(rejected[0][1])
    return good[0].body


@pytest.mark.parametrize("kind", codec.BODIES, ids=lambda kind: kind.__name__)
def test_what_is_true_is_believed_as_it_is(kind: type[Any]) -> None:
    assert believed(TRUE[kind], OWN) is TRUE[kind]


@given(st.one_of(*map(instances, codec.BODIES)))
def test_a_node_that_was_given_nothing_is_believed_nothing(body: Any) -> None:
    if isinstance(body, Usage):  # whose time it is, the store tells
        with pytest.raises(InvalidReport, match="owner"):
            validation.paid(body, None)
    else:
        with pytest.raises(InvalidReport):
            believed(body, NOTHING)


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Struct):
        for one in asdict(value).values():
            yield from numbers(one)
    elif isinstance(value, tuple):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield value


@given(st.one_of(*map(instances, codec.BODIES)), st.data())
def test_whatever_is_believed_fits_into_the_store(body: Any, data: st.DataObject) -> None:
    """Of hostile values about the node's own things."""
    true = TRUE[type(body)]
    names = [name for name in body.__struct_fields__ if name not in ("job", "attempt")]
    taken = data.draw(st.sets(st.sampled_from(names))) if names else set()
    reported = replace(true, **{name: getattr(body, name) for name in taken})
    with suppress(InvalidReport):
        good = believed(reported, OWN)
        assert all(-(2**63) <= number < 2**63 for number in numbers(good))
        assert "\x00" not in "".join(strings(good))
        for key in keys(good):
            assert key.startswith(PREFIX)
            assert "/" not in key.removeprefix(PREFIX)
        for name in ("value", "output"):
            text = getattr(good, name, None)
            assert not text or json_flaw(text) is None


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, Struct):
        for one in asdict(value).values():
            yield from strings(one)
    elif isinstance(value, tuple):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def keys(body: Any) -> list[str]:
    refs = [getattr(body, name, None) for name in ("ref", "output_ref")]
    return [ref.key for ref in refs if ref is not None] + [one.key for one in getattr(body, "artifacts", ())]


DONE: Outcome = TRUE[Outcome]
BIG = 2**63


def artifact(key: str) -> Outcome:
    return replace(DONE, artifacts=(Artifact(key, 1, "ab", "image/png"),))


LIES: list[tuple[ReportBody, str]] = [
    (Uploading("job", 2), "attempt 2 of job 'job' is not one that control gave"),
    (Released("other", 1), "job 'other' is not one"),
    (replace(DONE, worker="v"), "worker must be the attempt's, w, not 'v'"),
    (
        replace(DONE, end="won"),
        "end must be one of cancelled, completed, failed, lost, timed_out, yielded, not 'won'",
    ),
    (replace(DONE, wait_ms=2**53 + 1), "wait_ms must be from 0 to"),
    (replace(DONE, execution_ms=BIG), "execution_ms must be from 0 to"),
    (replace(DONE, output_ref=Ref("echo/other/1/output.json", 1, "ab")), "output_ref.key must name a file"),
    (replace(DONE, output_ref=Ref(f"{PREFIX}output.json", BIG, "ab")), "output_ref.size must be"),
    (artifact("echo/other/1/0-a.png"), "right below 'echo/job/1/', not 'echo/other/1/0-a.png'"),
    (artifact(f"{PREFIX}../../other/1/0-a.png"), "must name a file right below"),
    (artifact(f"{PREFIX}.."), "must name a file right below"),
    (artifact(PREFIX), "must name a file right below"),
    (artifact("0-a.png"), "must name a file right below"),
    (artifact("/"), "must name a file right below"),
    (replace(DONE, artifacts=DONE.artifacts * 2), r"artifacts\[1\].key .* is named twice"),
    (
        replace(DONE, spans=(Span("output", "pixel", 10, 201),)),
        "that of 10 at 20 each, not 201",
    ),
    (replace(DONE, spans=(Span("output", "wish", 10, 200),)), "nano_usd must be that of 10 at 0 each"),
    (replace(DONE, spans=(Span("output", "pixel", BIG, 0),)), r"spans\[0\].quantity must be from 0 to"),
    (replace(DONE, spans=(Span("output", "pixel", 2**53, 20 * 2**53),)), "nano_usd must be from 0 to 10"),
    (replace(DONE, spans=DONE.spans[1:] * 2), "is a second one of kind output"),
    (Progress("job", 1, b"{"), "value is not JSON"),
    (Progress("job", 1, b'"' + b"x" * (1 << 20) + b'"'), "value must have at most 1048576 bytes"),
    (Chunk("job", 1, 0, b"NaN"), "value is not JSON"),
    (Chunk("job", 1, 0, b"1", Ref(f"{PREFIX}chunk-0.json", 1, "ab")), "value must be empty"),
    (Save("job", 2, 0, 0, b"state"), "attempt 2 of job 'job' is not one that control gave to this node"),
    (Save("job", 1, 0, 0, bytes(64 * 1024 + 1)), "state must have at most 65536 bytes, not 65537"),
    (Save("job", 1, 0, 0, b"1", Ref(f"{PREFIX}save-0", 1, "ab")), "state must have at most 0 bytes, not 1"),
    (Save("job", 1, 0, 0, b"", Ref("echo/job/2/save-0", 1, "ab")), "ref.key must name a file"),
    (Save("job", 1, 0, 2**40, b""), "upto must be from 0 to"),
    (Save("job", 1, 0, 0, b"", content="source\n5d41"), "content must be 1 to 256 characters"),
    (Save("job", 1, 0, 0, b"", content="s" * 257), "content must be 1 to 256 characters"),
    (Chunk("job", 1, 0, b"", Ref("echo/job/2/chunk-0.json", 1, "ab")), "ref.key must name a file"),
    (WorkerState("v", "echo", 1, "ready"), "worker 'v' is not one that control gave"),
    (WorkerState("w", "other", 1, "ready"), "endpoint and version must be the worker's"),
    (WorkerState("w", "echo", 2, "ready"), "endpoint and version must be the worker's"),
    (WorkerState("w", "echo", 1, "free"), "state must be one of"),
    (WorkerState("w", "echo", 1, "ready", slots=1000), "slots must be at most 4, as the endpoint allows"),
    (PodState("other", 1, 0, "running"), "pod 'other' is not one"),
    (PodState("pod", 1, 0, "flying"), "state must be one of"),
    (PodState("pod", 1, 0, "running", started_ms=BIG), "started_ms must be from 0 to"),
    (PodState("pod", 1, 0, "running", ports=(PortMapping(80, 70_000, "http"),)), r"ports\[0\].public"),
    (VolumeUsed("other", 1), "volume 'other' is not one"),
    (VolumeUsed("vol", BIG), "used_bytes must be from 0 to"),
    (VolumeUsed("vol", 1, gone=True), "control did not have this node remove volume vol"),
    (replace(TRUE[Usage], kind="house"), "kind must be one of worker, pod, not 'house'"),
    (replace(TRUE[Usage], state="flying"), "state must be one of"),
    (replace(TRUE[Usage], ended_ms=BIG), "ended_ms must be from 0 to"),
]


@pytest.mark.parametrize(("message", "why"), LIES)
def test_a_lie_is_named_by_its_field(message: ReportBody, why: str) -> None:
    with pytest.raises(InvalidReport, match=why):
        believed(message, OWN)


UNREADABLE = [
    b"",
    b'{"a":1',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'{"a":NaN}',
    b"-Infinity",
    b'"\\ud800"',
    b"1e999",
    b"1 2",
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize("output", UNREADABLE)
def test_an_output_that_no_caller_could_read_fails_its_job_with_a_message(output: bytes) -> None:
    good = believed(replace(DONE, output=output), OWN)
    assert isinstance(good, Outcome)
    assert (good.end, good.output, good.retryable) == ("failed", None, False)
    assert str(good.error).startswith(("the output is not JSON", "the output is not UTF-8"))


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_a_json_text_is_one_for_the_strictest_reader(text: bytes) -> None:
    import orjson

    try:
        orjson.loads(text)
    except ValueError:
        assert json_flaw(text) is not None
    else:
        assert json_flaw(text) is None


def test_nul_in_texts_is_shown_and_not_stored() -> None:
    good = believed(replace(DONE, end="failed", error="a\x00b", log=("c\x00",)), OWN)
    assert isinstance(good, Outcome)
    assert (good.error, good.log) == ("a\ufffdb", ("c\ufffd",))


def test_lines_have_a_time_each_or_none_has() -> None:
    lines = LogLines(None, "job", 1, 0, ("a", "b"), at_ms=(5, AMOUNT_MAX))
    believed(replace(DONE, log=("a", "b"), log_at_ms=(0, 7)), OWN)
    validation.printed(lines, "node", "node")
    with pytest.raises(InvalidReport, match="log_at_ms must have a time for each of 1 lines, not 2"):
        believed(replace(DONE, log_at_ms=(5, 6)), OWN)
    for wrong in ((5,), (5, 6, 7)):
        with pytest.raises(
            InvalidReport, match=f"^at_ms must have a time for each of 2 lines, not {len(wrong)}"
        ):
            validation.printed(replace(lines, at_ms=wrong), "node", "node")
    with pytest.raises(InvalidReport, match="log_at_ms must be from 0 to"):
        believed(replace(DONE, log_at_ms=(AMOUNT_MAX + 1,)), OWN)


def test_of_a_job_that_is_forgotten_no_key_may_be_named() -> None:
    forgotten = Things(attempts={KEY: AssignedAttempt("")})
    believed(replace(DONE, artifacts=()), forgotten)
    for one in (DONE, artifact("a"), artifact("")):
        with pytest.raises(InvalidReport, match="must name a file right below"):
            believed(one, forgotten)


def test_usage_is_paid_for_what_was_held() -> None:
    span: Usage = TRUE[Usage]
    worker = OWN.workers["w"]
    validation.paid(span, worker)
    for lie in (
        replace(span, endpoint="other"),
        replace(span, version=2),
        replace(span, devices=("h",)),
        replace(span, devices=("g", "g")),
    ):
        with pytest.raises(InvalidReport):
            validation.paid(lie, worker)
    with pytest.raises(InvalidReport, match="owner 'w' is not a worker"):
        validation.paid(span, None)


# ---- Hello and Beat


HELLO = Hello(1, "node", "name", "boot", "1", (Device("g", "gpu", "L4"),), {"cuda": "12"})


def test_a_true_hello_is_believed() -> None:
    assert checked_hello(HELLO) is HELLO


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (replace(HELLO, node=""), "node must be 1 to 256 characters"),
        (replace(HELLO, node="a\nb"), "node must be"),
        (replace(HELLO, boot="b" * 300), "boot must be"),
        (replace(HELLO, devices=HELLO.devices * 2), r"devices\[1\].uuid 'g' is named twice"),
        (replace(HELLO, devices=HELLO.devices * 300), "devices must be at most 256, not 300"),
        (replace(HELLO, devices=(Device("g", "toaster", "L4"),)), r"devices\[0\].kind must be one of"),
        (replace(HELLO, devices=(Device("g", "gpu", "L4", memory_total=BIG),)), "memory_total must be"),
        (replace(HELLO, facts={"a": "\x00"}), "facts"),
        (replace(HELLO, facts={str(n): "" for n in range(300)}), "facts must be at most 256"),
        (replace(HELLO, workers=(HeldWorker("w", "e", 1, "ready"),) * 9000), "workers must be at most 8192"),
    ],
)
def test_a_hello_that_cannot_be_stored_is_refused(lie: Hello, why: str) -> None:
    with pytest.raises(InvalidReport, match=why):
        checked_hello(lie)


@given(st.lists(instances(HeldWorker), max_size=4), st.dictionaries(st.text(max_size=2), st.integers(0, 3)))
def test_only_workers_that_were_given_are_known(held: list[HeldWorker], slots: dict[str, int]) -> None:
    assigned = {name: AssignedWorker("echo", 1, most) for name, most in slots.items()}
    held += [HeldWorker(name, "echo", 1, "ready", slots=most) for name, most in slots.items()]
    held += [HeldWorker(name, "echo", 1, "ready", slots=most + 1) for name, most in slots.items()]
    known, others = assigned_workers(held, assigned)
    assert len(known) + len(others) == len(held)
    for worker in known:
        assert worker.worker in assigned
        assert (worker.endpoint, worker.version) == ("echo", 1)
        assert (worker.slots or 0) <= slots[worker.worker]
    assert {one.worker for one in known} == set(assigned)


def test_samples_are_of_own_devices_and_finite() -> None:
    good = DeviceSample("g", power=1.0, ill="lost")
    assert sampled([good], {"g"}) == ((good,), None)
    assert sampled([replace(good, ill="a\x00")], {"g"}) == ((replace(good, ill="a\ufffd"),), None)
    for lie in (DeviceSample("h"), replace(good, power=math.nan), replace(good, memory_used=2**64 - 1)):
        own, why = sampled([lie], {"g"})
        assert (own, why is None) == ((), False)


# ---- mutants


def _kills(module: ModuleType) -> bool:
    for body in TRUE.values():
        try:
            if believed(body, OWN, module) is not body:
                return True
        except Exception:
            return True
    return any(not _disbelieves(module, one) for one, _ in LIES) or _reads_the_unreadable(module)


def _disbelieves(module: ModuleType, message: Any) -> bool:
    try:
        believed(message, OWN, module)
    except module.InvalidReport:
        return True
    except Exception:
        return False
    return False


def _reads_the_unreadable(module: ModuleType) -> bool:
    return any(believed(replace(DONE, output=text), OWN, module).output is not None for text in UNREADABLE)


MUTANTS = [
    ("if attempt is None:", "if False:"),
    ("if worker is None:", "if False:"),
    ("if attempt.worker is not None and report.worker != attempt.worker:", "if False:"),
    ("if not assigned.pod(report.pod):", "if False:"),
    ("if goes is None:", "if False:"),
    ("if report.gone and not goes:", "if False:"),
    ("slots > worker.slots", "slots >= worker.slots"),
    ("if slots is not None and slots > worker.slots:", "if False:"),
    ("not 0 <= value <= most:", "not 0 <= value:"),
    ("if not _FILE.fullmatch(file):", "if not file:"),
    ("if attempt.prefix and key.startswith(attempt.prefix) else", "if attempt.prefix else"),
    ('_FILE = re.compile(r"[A-Za-z0-9][', '_FILE = re.compile(r"['),
    ("if artifact.key in keys:", "if False:"),
    ("if (span.kind, span.unit) in seen:", "if False:"),
    ("if span.nano_usd != span.quantity * price:", "if span.nano_usd < span.quantity * price:"),
    ("if flaw is None:\n        return report", "if True:\n        return report"),
    ("if len(value) > INLINE_MAX:", "if False:"),
    ("if value not in allowed:", "if False:"),
    (
        "if worker.endpoint and (report.endpoint, report.version) != (worker.endpoint, worker.version):",
        "if worker.endpoint and report.endpoint != worker.endpoint:",
    ),
]


def test_the_examples_hold_for_the_module_itself() -> None:
    assert not _kills(validation)


@pytest.mark.parametrize(("old", "new"), MUTANTS)
def test_each_mutant_is_noticed(old: str, new: str) -> None:
    assert _kills(mutant(validation, old, new))


@pytest.mark.parametrize("fact", ["vcpus", "memory_bytes", "disk_free", "disk_total"])
@pytest.mark.parametrize("value", ["x", "nan", "inf", "-3", "", "1e99", "9" * 19])
def test_facts_that_are_read_as_numbers_are_numbers(fact: str, value: str) -> None:
    with pytest.raises(InvalidReport, match="must be a number"):
        check_facts({fact: value})
    check_facts({fact: "8", "cuda": value})
