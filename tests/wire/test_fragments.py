"""Pieces that were cut come together again, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wire import agent_pb2, codec
from stoker.wire.convert import WireError
from stoker.wire.fragments import MESSAGE_MAX, PIECE_MAX, FragmentError, Joiner, split
from stoker.wire.messages import Assign, Beat, FromAgent, FromControl, Progress, Report


@given(st.binary(min_size=1, max_size=200), st.integers(1, 50))
def test_split_and_join(data: bytes, piece: int) -> None:
    pieces = split(data, piece)
    joiner = Joiner()
    assert all(0 < len(one) <= piece for one in pieces)
    for one in pieces[:-1]:
        assert joiner.add(one, last=False) is None
    assert joiner.add(pieces[-1], last=True) == data
    joiner.refuse_whole()  # it waits for no further piece


def test_a_message_over_the_bound_is_refused_on_both_sides() -> None:
    with pytest.raises(FragmentError, match="11 bytes is over the limit of 10"):
        split(b"x" * 11, total=10)
    joiner = Joiner(total=10)
    joiner.add(b"x" * 6, last=False)
    with pytest.raises(FragmentError, match="12 bytes are over the limit of 10"):
        joiner.add(b"x" * 6, last=True)


def test_an_empty_piece_is_refused() -> None:
    # It would let a peer send pieces for ever without reaching the bound.
    with pytest.raises(FragmentError, match="empty"):
        Joiner().add(b"", last=False)


def test_a_whole_message_between_pieces_is_refused() -> None:
    joiner = Joiner()
    joiner.refuse_whole()
    joiner.add(b"x", last=False)
    with pytest.raises(FragmentError, match="between fragments, after 1 bytes"):
        joiner.refuse_whole()


@pytest.mark.parametrize("size", [1, PIECE_MAX, MESSAGE_MAX - 64, MESSAGE_MAX, 5 * 1024 * 1024])
def test_no_transport_message_is_too_large(size: int) -> None:
    up = FromAgent(reports=(Report(1, Progress("job", 1, b"x" * size)),))
    down = FromControl(assigns=(Assign("job", 1, "w", b"x" * size),))
    from_agent, from_control = codec.JoiningDecoder(FromAgent), codec.JoiningDecoder(FromControl)
    for message, decoder in ((up, from_agent), (down, from_control)):
        pieces = codec.encode(message)
        assert max(map(len, pieces)) <= MESSAGE_MAX
        got = [decoder.feed(piece) for piece in pieces]  # type: ignore[attr-defined]
        assert got == [None] * (len(pieces) - 1) + [message]


def test_a_message_too_large_to_send_is_named() -> None:
    with pytest.raises(WireError, match="over the limit"):
        codec.encode(FromAgent(reports=(Report(1, Progress("job", 1, b"x" * (65 << 20))),)))


def test_a_broken_sequence_ends_the_stream() -> None:
    decoder = codec.JoiningDecoder(FromAgent)
    assert decoder.feed(agent_pb2.FromAgent(fragment=b"x").SerializeToString()) is None
    with pytest.raises(WireError, match="between fragments"):
        decoder.feed(codec.encode(FromAgent(beat=Beat(1)))[0])


def test_joined_pieces_that_are_no_message() -> None:
    decoder = codec.JoiningDecoder(FromAgent)
    with pytest.raises(WireError, match="are no FromAgent"):
        decoder.feed(agent_pb2.FromAgent(fragment=b"\xff\xff", last_fragment=True).SerializeToString())
