"""Values survive JSON; nothing else is sent, and nothing is unpickled."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.app_values import INLINE_MAX, TAG, ValueRefused, decode, encode

KEYS = st.text(max_size=5) | st.just(TAG)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = LEAVES | st.text(max_size=8) | st.binary(max_size=20)
VALUES = st.recursive(LEAVES, lambda one: st.lists(one, max_size=4) | st.dictionaries(KEYS, one, max_size=4))


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@given(VALUES)
def test_a_value_survives(value: Any) -> None:
    assert decode(through_json(encode(value))) == value


@given(
    st.sampled_from(["<f4", ">f8", "|b1", "<i2", "|u1", "<c16"]),
    st.lists(st.integers(0, 4), max_size=3),
    st.binary(min_size=16),
)
def test_an_array_survives(dtype: str, shape: list[int], data: bytes) -> None:
    array = numpy.resize(numpy.frombuffer(data[: len(data) // 16 * 16], dtype), shape)
    found = decode(through_json(encode({"a": [array]})))["a"][0]
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert found.flags.writeable


def test_much_is_stored_and_referred_to() -> None:
    stored: dict[str, bytes] = {}

    def store(data: bytes) -> Mapping[str, str]:
        stored[f"u{len(stored)}"] = data
        return {"url": f"u{len(stored) - 1}"}

    value = {"small": b"x", "large": bytes(INLINE_MAX + 1), "array": numpy.zeros((300, 300))}
    sent = encode(value, store)
    assert sent["large"] == {TAG: "bytes", "url": "u0"}
    assert sent["array"]["url"] == "u1"
    found = decode(through_json(sent), lambda tagged: stored[tagged["url"]])
    assert (found["large"], found["array"].shape) == (value["large"], (300, 300))
    with pytest.raises(ValueRefused, match=r"the value\.large has no data"):
        decode(sent)


def test_numbers_of_numpy_are_numbers() -> None:
    assert encode([numpy.float64(0.5), numpy.int8(3), numpy.bool_(True)]) == [0.5, 3, True]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({1: 2}, "the key 1"),
        ([{"a": {1, 2}}], r"the value\[0\]\.a is a set"),
        (float("nan"), "nan"),
        (numpy.array([object()]), "array of object"),
        (object, "is a type"),
    ],
)
def test_what_cannot_be_sent_is_named(value: Any, says: str) -> None:
    with pytest.raises(ValueRefused, match=says):
        encode(value)


@pytest.mark.parametrize(
    "value",
    [
        {TAG: "pickle", "data": "gAN9cQAu"},
        {TAG: "bytes", "data": "!"},
        {TAG: "bytes", "data": 3},
        {TAG: "array", "dtype": "|O", "shape": [1], "data": "AAAAAAAAAAA="},
        {TAG: "array", "dtype": "nonsense", "shape": [1], "data": ""},
        {TAG: "array", "dtype": "<f4", "shape": [9], "data": "AAAA"},
        {TAG: "array", "dtype": "<f4", "shape": ["x"], "data": "AAAA"},
        {TAG: "object", "value": 3},
    ],
)
def test_a_wrong_tagged_object_is_refused(value: Any) -> None:
    with pytest.raises(ValueRefused, match="the value"):
        decode(value)


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda one: (
        st.lists(one, max_size=3)
        | st.dictionaries(st.sampled_from([TAG, "data", "dtype", "shape", "value"]), one, max_size=5)
    ),
)


@given(JSON)
def test_any_json_is_decoded_or_refused(value: Any) -> None:
    with contextlib.suppress(ValueRefused):
        decode(value)
