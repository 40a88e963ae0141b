"""Frames survive any cut of the byte stream; what is no frame is refused, and no descriptor is lost."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.worker import frames as module
from stoker.worker.frames import (
    BODY_MAX,
    HEADER_MAX,
    INLINE_MAX,
    SEALS,
    Frame,
    FrameError,
    FrameReader,
    encode,
    with_body,
)
from tests.profiles import examples

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.one_of(st.integers(), st.booleans(), st.none(), names, st.lists(st.integers(), max_size=3))
fields = st.dictionaries(names.filter(lambda name: name not in {"t", "fd", "memfd"}), values, max_size=4)
cut_places = st.lists(st.integers(min_value=0), max_size=4)
plain_frames = st.builds(Frame, names, fields, st.binary(max_size=200))


def parts(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(plain_frames, max_size=6), st.lists(st.integers(min_value=0), max_size=12))
def test_any_frames_survive_any_cut(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(encode(frame)[0] for frame in sent)
    reader = FrameReader()
    got = [frame for part in parts(data, cuts) for frame in reader.feed(part)]
    assert got == sent


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(plain_frames, st.booleans(), st.booleans(), cut_places), min_size=1, max_size=4))
def test_descriptors_reach_their_own_frames(sent: list[tuple[Frame, bool, bool, list[int]]]) -> None:
    """Each frame's descriptors come with the piece that holds its first byte, as the kernel delivers them."""
    reader, got, made = FrameReader(), [], []
    for number, (frame, with_fd, large, cuts) in enumerate(sent):
        fd = os.memfd_create(f"frame-{number}") if with_fd else None
        body = bytes([number]) * (INLINE_MAX + 1) if large else frame.body
        encoded, fds = encode(Frame(frame.kind, frame.fields, body, fd))
        assert len(encoded) <= 2 * HEADER_MAX
        first, *rest = [part for part in parts(encoded, cuts) if part]
        got += map(with_body, reader.feed(first, fds))
        for part in rest:
            got += map(with_body, reader.feed(part))
        made.append((frame.kind, frame.fields, body, with_fd))
    for number, frame in enumerate(got):
        if frame.fd is not None:
            assert os.readlink(f"/proc/self/fd/{frame.fd}").startswith(f"/memfd:frame-{number}")
            os.close(frame.fd)
    assert [(f.kind, f.fields, f.body, f.fd is not None) for f in got] == made


def test_a_body_goes_by_memfd_only_above_the_inline_limit() -> None:
    assert encode(Frame("done", {}, b"x" * INLINE_MAX))[1] == []
    _, fds = encode(Frame("done", {}, b"x" * (INLINE_MAX + 1)))
    assert len(fds) == 1
    assert not os.get_inheritable(fds[0])
    os.close(fds[0])


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (Frame("done", {}, bytes(BODY_MAX + 1)), "a done of 67108865 bytes is over the limit"),
        (Frame("failed", {"error": "x" * HEADER_MAX}, bytes(INLINE_MAX + 1)), "a failed header of 65"),
    ],
    ids=["body", "header"],
)
def test_what_is_too_large_is_refused_with_a_message(frame: Frame, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        encode(frame)


def announced(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">II", len(text), len(body)) + text + body


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", HEADER_MAX + 1, 0),
        struct.pack(">II", 2, INLINE_MAX + 1),
        announced(b"{"),
        announced(b"\xff\xfe"),
        announced([]),
        announced({"no": "kind"}),
        announced({"t": 7}),
        announced({"t": "file", "fd": 1}),
        announced({"t": "done", "memfd": 5}),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        list(FrameReader().feed(data))


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (-1, "a frame announces a body of -1 bytes"),
        (BODY_MAX + 1, "a frame announces a body of 67108865 bytes"),
        ("5", "a frame announces a body of '5' bytes"),
        (6, "a body announced as 6 bytes has 5"),
    ],
)
def test_a_body_that_is_not_as_announced_is_refused_and_its_descriptors_closed(
    size: object, message: str
) -> None:
    file, body = os.memfd_create("file"), os.memfd_create("body", os.MFD_ALLOW_SEALING)
    os.write(body, b"12345")
    fcntl.fcntl(body, fcntl.F_ADD_SEALS, SEALS)
    reader = FrameReader()
    with pytest.raises(FrameError, match=message):
        list(map(with_body, reader.feed(announced({"t": "file", "fd": 1, "memfd": size}), [file, body])))
    reader.close()


def test_a_descriptor_that_no_frame_announces_is_refused() -> None:
    reader = FrameReader()
    with pytest.raises(FrameError, match="no frame announces"):
        list(reader.feed(announced({"t": "progress"}), [os.memfd_create("stray")]))
    reader.close()


def test_a_descriptor_waits_for_the_rest_of_its_frame() -> None:
    reader, fd = FrameReader(), os.memfd_create("waits")
    data = announced({"t": "file", "fd": 1})
    assert list(reader.feed(data[:1], [fd])) == []
    (frame,) = reader.feed(data[1:])
    assert frame.fd == fd
    os.close(fd)


def test_closing_a_reader_closes_what_nobody_took() -> None:
    reader, fd = FrameReader(), os.memfd_create("left")
    list(reader.feed(announced({"t": "file", "fd": 1})[:5], [fd]))
    reader.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_failing_write_leaves_no_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "write", full)
    with pytest.raises(OSError, match="No space"):
        encode(Frame("done", {}, bytes(INLINE_MAX + 1)))


def test_the_inline_limit_holds_in_both_directions() -> None:
    data, _ = encode(Frame("done", {}, b"x" * INLINE_MAX))
    (frame,) = FrameReader().feed(data)
    assert len(frame.body) == INLINE_MAX
