"""Values become JSON that every reader takes, or a sentence that names the place and the type."""

from __future__ import annotations

import enum
import json
import os
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.worker import File, FileRefused, OutputError
from stoker.worker.payloads.files import OpenFile
from stoker.worker.payloads.output import encode_value

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), texts, st.floats(allow_nan=False, allow_infinity=False)
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=10,
).filter(lambda tree: "$file" not in json.dumps(tree))


@given(trees)
def test_plain_values_survive(value: Any) -> None:
    assert json.loads(encode_value(value, name="output")) == value


@given(trees)
def test_a_file_is_found_wherever_it_stands(value: Any) -> None:
    """The path is no file at all: what matters is that the walk got there, and said where it was."""
    deep = {"a": [value, {"b": (1, File("/nowhere/x.png"))}]}
    with pytest.raises(FileRefused, match=r"^x\.png cannot be opened: no such file"):
        encode_value(deep, name="output", scratch="/nowhere", hand_over=lambda _: 0)


class Colour(enum.IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Point(1, 2), "[1,2]"),
        ((), "[]"),
        ({2: Colour.RED, None: 2.5, True: False}, '{"2":1,"null":2.5,"true":false}'),
        ("é\n\x00", '"é\\n\\u0000"'),
        ("$file", '"$file"'),
        ({"text": '"$file"'}, '{"text":"\\"$file\\""}'),
        (2**70, str(2**70)),
    ],
)
def test_what_json_can_hold(value: object, text: str) -> None:
    assert encode_value(value, name="output").decode() == text


class Tensor:
    def tolist(self) -> list[int]:
        return [1]


class Image:
    def save(self, path: str) -> None: ...


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"items": [1, 2, 3, {"x": {1}}]},
            "output.items[3].x is a set, which JSON cannot hold; make it a list",
        ),
        (object(), "output is an object, which JSON cannot hold"),
        (
            {"a b": b"x"},
            "output['a b'] is a bytes, which JSON cannot hold; return it as a File, or as base64",
        ),
        ([Path("x")], "output[0] is a pathlib.PosixPath, which JSON cannot hold; wrap it in File(...)"),
        ([Tensor()], "Tensor, which JSON cannot hold; call its tolist()"),
        ([Image()], "Image, which JSON cannot hold; save it below job.scratch and return a File"),
        ({"loss": float("nan")}, "output.loss is nan, which JSON cannot hold"),
        ({"loss": [float("-inf")]}, "output.loss[0] is -inf"),
        ({"name": "\udc80"}, "output.name is text with a lone surrogate"),
        ({"\udc80": 1}, "output is text with a lone surrogate"),
        ({float("nan"): 1}, "output is nan"),
        ({(1, 2): 1}, "output has a tuple as a key; JSON's keys are text"),
        ({"a": {File("x"): 1}}, "output.a has a stoker.worker.sdk.File as a key"),
        ({"a": {"$file": 0}}, 'output.a has the key "$file", which is kept for files'),
        ([1 << 20_000], "output[0] is a whole number too large for JSON"),
    ],
)
def test_what_json_cannot_hold_is_named_with_its_place(value: object, message: str) -> None:
    with pytest.raises(OutputError) as caught:
        encode_value(value, name="output")
    assert message in str(caught.value)


def test_a_value_that_holds_itself() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(OutputError, match="nested too deeply, or holds itself"):
        encode_value(loop, name="output")


def test_files_are_numbered_from_where_the_attempt_stands_and_a_repeated_one_is_sent_once(
    tmp_path: Path,
) -> None:
    for name in ("a.png", "b"):
        (tmp_path / name).write_text(name)
    first, second = File(tmp_path / "a.png"), File(str(tmp_path / "b"), "text/x", name="named.b")
    reported: list[tuple[str, str, bytes]] = []

    def hand_over(file: OpenFile) -> int:
        assert not os.get_inheritable(file.fd)
        reported.append((file.name, file.media_type, os.read(file.fd, 10)))
        return 3 + len(reported)

    value = [first, {"x": (second, first)}]
    body = encode_value(value, name="o", scratch=str(tmp_path), hand_over=hand_over)
    assert json.loads(body) == [{"$file": 4}, {"x": [{"$file": 5}, {"$file": 4}]}]
    assert reported == [("a.png", "image/png", b"a.png"), ("named.b", "text/x", b"b")]


def test_a_refused_value_leaves_no_file_open(tmp_path: Path) -> None:
    """The fixture that counts descriptors is what asserts."""
    (tmp_path / "a").write_text("a")
    value = [File(tmp_path / "a"), object()]
    with pytest.raises(OutputError):
        encode_value(value, name="output", scratch=str(tmp_path), hand_over=lambda _: 0)


def test_progress_takes_no_file() -> None:
    with pytest.raises(OutputError, match=r"progress\.preview is a File; put it in the final output instead"):
        encode_value({"preview": File("x")}, name="progress")
