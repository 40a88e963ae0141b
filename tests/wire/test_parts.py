"""Parts are counted as the parser would find them, in bounded time, whatever the bytes are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wire import agent_pb2, codec
from stoker.wire.codec import WireError
from stoker.wire.messages import FromAgent, FromControl, LogLines
from stoker.wire.parts import PARTS_MAX, SMALLEST, PartCounter
from tests.wire.vocabulary import instances

COUNTER = PartCounter(agent_pb2.FromAgent.DESCRIPTOR)


def parts(proto: Any) -> int:
    """As protobuf's own reading has it."""
    found = 0
    for field, value in proto.ListFields():
        if field.message_type is None:
            found += len(value) if field.is_repeated else 1
        elif field.message_type.GetOptions().map_entry:
            found += 3 * len(value)
        else:
            inner = value if field.is_repeated else [value]
            found += sum(1 + parts(one) for one in inner)
    return found


@given(instances(FromAgent))
def test_parts_are_those_that_are_parsed(message: FromAgent) -> None:
    proto = codec.WRITERS[FromAgent](message)
    assert COUNTER.count(proto.SerializeToString(), 1 << 30) == parts(proto)


@given(st.binary(max_size=300), st.integers(0, 20))
def test_any_bytes_are_counted_as_far_as_the_limit(data: bytes, most: int) -> None:
    assert 0 <= COUNTER.count(data, most) <= most + 1
    assert COUNTER.count(data, most) <= len(data)


@given(instances(FromAgent))
def test_few_bytes_have_few_parts(message: FromAgent) -> None:
    data = codec.WRITERS[FromAgent](message).SerializeToString()
    assert COUNTER.count(data, 1 << 30) * SMALLEST <= len(data)


@pytest.mark.parametrize("kind", [FromAgent, FromControl, LogLines])
def test_no_field_packs_numbers(kind: type[Any]) -> None:
    """Packed numbers would be one part and many values."""
    seen, todo = set(), [getattr(agent_pb2, kind.__name__).DESCRIPTOR]
    while todo:
        message = todo.pop()
        seen.add(message.full_name)
        assert not [field.name for field in message.fields if field.is_packed]
        inner = [field.message_type for field in message.fields if field.message_type is not None]
        todo += [one for one in inner if one.full_name not in seen]


def test_numbers_that_a_sender_packs_are_many_parts() -> None:
    packed = bytes((7 << 3 | 2, 100)) + bytes(100)
    assert len(agent_pb2.LogLines.FromString(packed).at_ms) == 100
    counter = PartCounter(agent_pb2.LogLines.DESCRIPTOR)
    assert [counter.count(packed, most) for most in (1000, 50)] == [101, 51]


def test_a_message_of_too_many_parts_is_not_parsed() -> None:
    decoder = codec.Decoder(FromAgent)
    tiny = agent_pb2.FromAgent(reports=[agent_pb2.Report()] * (PARTS_MAX + 1)).SerializeToString()
    assert len(tiny) == SMALLEST * (PARTS_MAX + 1)
    with pytest.raises(WireError, match="more than 65536 parts"):
        decoder.read(tiny)
