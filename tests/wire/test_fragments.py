"""Fragments are joined to the message that was split, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wire import agent_pb2, codec
from stoker.wire.codec import WireError
from stoker.wire.fragments import FRAGMENT_MAX, MESSAGE_MAX, FragmentError, Joiner, split
from stoker.wire.messages import Assign, Beat, FromAgent, FromControl, Progress, Report


@given(st.binary(min_size=1, max_size=200), st.integers(1, 50))
def test_split_and_join(data: bytes, fragment: int) -> None:
    fragments = split(data, fragment)
    joiner = Joiner()
    assert all(0 < len(one) <= fragment for one in fragments)
    for one in fragments[:-1]:
        assert joiner.add(one, last=False) is None
    assert joiner.add(fragments[-1], last=True) == data
    assert not joiner.gathered  # it waits for no further fragment


def test_a_message_over_the_bound_is_refused_on_both_sides() -> None:
    with pytest.raises(FragmentError, match="11 bytes is over the limit of 10"):
        split(b"x" * 11, total=10)
    joiner = Joiner(total=10)
    joiner.add(b"x" * 6, last=False)
    with pytest.raises(FragmentError, match="12 bytes are over the limit of 10"):
        joiner.add(b"x" * 6, last=True)


def test_an_empty_fragment_is_refused() -> None:
    # It would let a peer send fragments for ever without reaching the bound.
    with pytest.raises(FragmentError, match="empty"):
        Joiner().add(b"", last=False)


@pytest.mark.parametrize("size", [1, FRAGMENT_MAX, MESSAGE_MAX - 64, MESSAGE_MAX, 5 * 1024 * 1024])
def test_no_transport_message_is_too_large(size: int) -> None:
    up = FromAgent(reports=(Report(1, Progress("job", 1, b"x" * size)),))
    down = FromControl(assigns=(Assign("job", 1, "w", b"x" * size),))
    from_agent, from_control = codec.Decoder(FromAgent), codec.Decoder(FromControl)
    for message, decoder in ((up, from_agent), (down, from_control)):
        fragments = codec.encode(message)
        assert max(map(len, fragments)) <= MESSAGE_MAX
        *before, whole = [decoder.join(fragment) for fragment in fragments]  # type: ignore[attr-defined]
        assert before == [None] * (len(fragments) - 1)
        assert decoder.read(whole) == message  # type: ignore[attr-defined]


def test_a_message_too_large_to_send_is_named() -> None:
    with pytest.raises(WireError, match="over the limit"):
        codec.encode(FromAgent(reports=(Report(1, Progress("job", 1, b"x" * (65 << 20))),)))


def test_a_broken_sequence_ends_the_stream() -> None:
    decoder = codec.Decoder(FromAgent)
    assert decoder.join(agent_pb2.FromAgent(fragment=b"x").SerializeToString()) is None
    with pytest.raises(WireError, match="between fragments, after 1 bytes"):
        decoder.join(codec.encode(FromAgent(beat=Beat(1)))[0])


def test_joined_fragments_that_are_no_message() -> None:
    decoder = codec.Decoder(FromAgent)
    with pytest.raises(WireError, match="cannot be read as FromAgent"):
        decoder.read(
            decoder.join(agent_pb2.FromAgent(fragment=b"\xff\xff", last_fragment=True).SerializeToString())
        )
