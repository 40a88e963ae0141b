"""Whatever a worker's socket brings is a fact of the vocabulary or a broken protocol, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from stoker.agent import worker_frames as said
from stoker.agent.worker_frames import FRAME_RULES, BrokenProtocol, read, require_json, require_timely
from stoker.wire.messages import AttemptKey
from stoker.worker.frames import Frame, FrameError, FrameReader, with_body
from tests.profiles import examples

KEY = AttemptKey("j1", 1)

texts = st.text(max_size=40)  # lone surrogates, too
numbers = st.one_of(
    st.integers(), st.floats(), st.sampled_from([10**999, -1, 0, 1, 2**31, 2**63, 2**64, True, False])
)
scalars = st.one_of(st.none(), numbers, texts)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
fields_known = {name for word in FRAME_RULES.values() for name in word.fields}
names = st.sampled_from(sorted(fields_known | {"job", "attempt"}))
headers = st.dictionaries(names | texts, anything, max_size=8)
kinds = st.sampled_from(sorted(FRAME_RULES)) | texts
bodies = st.one_of(st.binary(max_size=40), anything.map(lambda value: json.dumps(value).encode()))

RIGHT: dict[str, Any] = {
    "job": "j1",
    "attempt": 1,
    "concurrency": 2,
    "serves": "flux-1-schnell",
    "ahead": 8,
    "stages_ms": {"import": 40},
    "n": 1,
    "upto": 1,
    "first": 0,
    "error": "no such voice",
    "reason": "worn out",
    "lost": True,
    "name": "a.png",
    "media_type": "image/png",
    "url": "https://example.org/a",
    "max_bytes": 100,
    "timeout_s": 1.5,
    "has_output": True,
    "in_file": False,
    "files": 0,
    "metrics": {"pixel": 1},
    "retryable": False,
    "yielded": False,
}
"""A value that is allowed, for each field of the vocabulary: a new field needs one here."""


def well_formed(kind: str) -> Frame:
    word = FRAME_RULES[kind]
    fields = {name: RIGHT[name] for name in word.fields}
    if word.job != "no":
        fields |= {"job": "j1", "attempt": 1}
    fd = 99 if word.descriptor == "must" else None
    return Frame(kind, fields, b"" if word.body == "no" else b'{"a":1}', fd)


@settings(max_examples=examples(400))
@given(kinds, headers, bodies, st.sampled_from([None, 99]), st.booleans())
def test_any_frame_is_a_fact_or_a_broken_protocol(
    kind: str, fields: dict[str, Any], body: bytes, fd: int | None, program: bool
) -> None:
    frame, broken = Frame(kind, fields, body, fd), ""
    try:
        assert type(read(frame, program=program)) is FRAME_RULES[kind].makes
    except BrokenProtocol as error:
        broken = str(error)
    assert len(broken.encode()) < 1000


@settings(max_examples=examples(400))
@given(st.sampled_from(sorted(FRAME_RULES)), st.data())
def test_one_wrong_field_is_enough(kind: str, data: st.DataObject) -> None:
    """Read or refused: what is read holds only values of the types and bounds that its readers count on."""
    frame = well_formed(kind)
    if not frame.fields:
        return
    name = data.draw(st.sampled_from(sorted(frame.fields)))
    value = data.draw(anything)
    try:
        reported = read(Frame(kind, {**frame.fields, name: value}, frame.body, frame.fd), program=True)
    except BrokenProtocol:
        return
    for attribute in asdict(reported).values():
        check(attribute)


def check(value: object) -> None:
    match value:
        case bool() | None | bytes():
            pass
        case AttemptKey(job, attempt):
            assert 0 < len(job) <= 200
            job.encode()
            assert 1 <= attempt < 2**31
        case int():
            assert 0 <= value < 2**53
        case float():
            assert 0 < value < 1e9
        case str():
            value.encode()
        case _:
            for name, quantity in value.items():  # type: ignore[attr-defined]
                name.encode()
                check(quantity)


@settings(max_examples=examples(300))
@given(st.lists(st.binary(max_size=60), max_size=4))
@example([struct.pack(">II", 60_000, 0) + b"[" * 60_000])
@example([struct.pack(">II", 18, 0) + b'{"t":"x","n":1e999}'])
@example([struct.pack(">II", 20, 0) + b'{"t":"x","n":Infinity}'])
@example([struct.pack(">II", 6, 0) + b'{"t":N'])
def test_any_bytes_are_frames_or_a_broken_protocol(chunks: list[bytes]) -> None:
    reader = FrameReader()
    try:
        for chunk in chunks:
            for frame in reader.feed(chunk):
                read_or_not(frame)
    except FrameError:
        pass
    reader.close()


def read_or_not(frame: Frame) -> None:
    with contextlib.suppress(BrokenProtocol):
        read(frame)


SOURCES: list[Callable[[], int]] = [
    lambda: os.open("/", os.O_RDONLY),
    lambda: os.open("/dev/zero", os.O_RDONLY),
    lambda: os.open("/proc/self/mem", os.O_RDONLY),
    lambda: os.open(__file__, os.O_RDONLY),
    lambda: os.open(__file__, os.O_PATH),
    lambda: os.eventfd(0),
    lambda: os.pidfd_open(os.getpid()),
    lambda: os.memfd_create("not sealed", os.MFD_ALLOW_SEALING),
    lambda: os.memfd_create("not to be sealed"),
]


@settings(max_examples=examples(200))
@given(
    st.lists(st.sampled_from(SOURCES), max_size=3),
    st.dictionaries(st.sampled_from(["fd", "memfd", "t"]), scalars, max_size=3),
)
def test_any_descriptors_are_refused_or_handed_on_and_none_is_lost(
    sources: list[Callable[[], int]], fields: dict[str, Any]
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    header = json.dumps({"t": "file", **fields}).encode()
    reader = FrameReader()
    try:
        data = struct.pack(">II", len(header), 0) + header
        for frame in map(with_body, reader.feed(data, [make() for make in sources])):
            assert frame.body == b"", "none of these is a sealed memfd"
            frame.close()
    except FrameError:
        pass
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kind", sorted(FRAME_RULES))
def test_each_word_is_read(kind: str) -> None:
    reported = read(well_formed(kind), program=True)
    for name in FRAME_RULES[kind].fields:
        assert getattr(reported, name) == RIGHT[name]


@pytest.mark.parametrize("kind", [kind for kind, word in FRAME_RULES.items() if word.program])
def test_some_frames_are_the_agents_own(kind: str) -> None:
    with pytest.raises(BrokenProtocol, match="which no worker may send"):
        read(well_formed(kind))


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("done", {"attempt": "1"}, "a done frame has attempt '1'; a whole number from 1 to 2147483647 is"),
        ("done", {"attempt": float("inf")}, "has attempt inf"),
        ("chunk", {"n": 10**999}, "a chunk frame has n of 3319 bits; a whole number from 0"),
        ("chunk", {"n": None}, "has n None"),
        ("slots", {"n": 1e300}, "has n 1e\\+300"),
        ("done", {"metrics": {"pixel": 2**60}}, "metrics"),
        ("done", {"metrics": {"pixel": True}}, "metrics"),
        ("done", {"metrics": {"\ud800": 1}}, "metrics"),
        ("fetch", {"timeout_s": float("nan")}, "has timeout_s nan; a number above 0"),
        ("fetch", {"url": "\ud800"}, "has url"),
        ("failed", {"retryable": "yes"}, "has retryable 'yes'; true or false is allowed"),
        ("failed", {"error": ["x" * 1000]}, "has error .{79}"),
    ],
)
def test_what_is_wrong_is_named(kind: str, changes: dict[str, Any], message: str) -> None:
    frame = well_formed(kind)
    with pytest.raises(BrokenProtocol, match=message):
        read(Frame(kind, {**frame.fields, **changes}, frame.body, frame.fd))


def test_what_comes_along_is_what_its_kind_has() -> None:
    for frame, message in [
        (Frame("progress", {"job": "j1", "attempt": 1}), "a progress frame came without a body"),
        (Frame("progress", {"job": "j1", "attempt": 1}, b"1", 99), "came with a descriptor"),
        (Frame("fetch", {**well_formed("fetch").fields}, b"1"), "a fetch frame came with a body"),
        (Frame("file", {**well_formed("file").fields}), "a file frame came without a descriptor"),
        (Frame("done", {"job": "j1", "attempt": 1}), "a done frame came without a body"),
        (Frame("done", {"job": "j1", "attempt": 1}, b"{bad"), "a body of 4 bytes is not JSON"),
        (Frame("done", {"job": "j1"}, b"1"), "a done frame has no attempt"),
        (Frame("", {}), "it sent '', which no worker may send"),
    ]:
        with pytest.raises(BrokenProtocol, match=message):
            read(frame)


@pytest.mark.parametrize("body", [b"NaN", b'"\xff"', b'"\\ud800"', b"", b"1 2", b'{"a":Infinity}', b"nul"])
def test_a_body_is_json_that_every_parser_takes(body: bytes) -> None:
    with pytest.raises(BrokenProtocol, match="not JSON"):
        require_json(body)


def test_an_error_is_cleaned_and_cut_and_reported() -> None:
    reported = read(Frame("failed", {"job": "j1", "attempt": 1, "error": "\ud800\0" + "x" * 100_000}))
    assert isinstance(reported, said.Failed)
    assert reported.error.startswith("?\ufffdx")
    assert len(reported.error.encode()) <= 32 * 1024


@pytest.mark.parametrize("kind", sorted(FRAME_RULES))
@pytest.mark.parametrize("ready", [False, True])
def test_when_what_may_be_sent(kind: str, ready: bool) -> None:
    reported = read(well_formed(kind), program=True)
    allowed = not ready if kind in ("ready", "setup_failed") else ready and kind == "slots"
    if allowed:
        require_timely(reported, setup_ended=ready, known=())
        return
    with pytest.raises(BrokenProtocol):
        require_timely(reported, setup_ended=ready, known=())
    if FRAME_RULES[kind].job != "no":
        require_timely(reported, setup_ended=True, known={KEY})


def test_who_loses_its_device_says_with_which_job() -> None:
    reported = read(Frame("retire", {"reason": "x", "lost": True}))
    with pytest.raises(BrokenProtocol, match="names no job"):
        require_timely(reported, setup_ended=True, known={KEY})
