"""Two ends of a tunnel, driven in any order: what one writes is what the other reads, within the window."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stoker.wire.messages import Piece
from stoker.wire.tunnel.multiplexer import (
    CONNECTIONS_MAX,
    PIECE_BYTES,
    PIECES_MAX,
    WINDOW_BYTES,
    Closed,
    Multiplexer,
    Opened,
    Received,
    TooManyConnections,
    TunnelBroken,
)

CONTROL, AGENT = 0, 1
END = st.sampled_from([CONTROL, AGENT])
SIZE = st.one_of(st.integers(1, 40), st.integers(1, 2 * WINDOW_BYTES))


class Ends(RuleBasedStateMachine):
    """The pieces of each end are on their way until `arrive`. `unread` is what arrived and no reader took."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = (Multiplexer(opens=True), Multiplexer(opens=False))
        self.under_way: tuple[deque[Piece], deque[Piece]] = (deque(), deque())
        self.wrote: tuple[dict[int, bytearray], dict[int, bytearray]] = (
            defaultdict(bytearray),
            defaultdict(bytearray),
        )
        self.read: tuple[dict[int, bytearray], dict[int, bytearray]] = (
            defaultdict(bytearray),
            defaultdict(bytearray),
        )
        self.unread: tuple[dict[int, int], dict[int, int]] = (defaultdict(int), defaultdict(int))
        self.closed: tuple[set[int], set[int]] = (set(), set())
        self.opened: list[int] = []
        self.number = 0

    def _one(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(self.opened))

    @precondition(lambda self: len(self.opened) < 4)
    @rule()
    def open(self) -> None:
        self.opened.append(self.ends[CONTROL].open())

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), end=END, size=SIZE)
    def write(self, data: st.DataObject, end: int, size: int) -> None:
        connection = self._one(data)
        if self.ends[end].has(connection) and connection not in self.closed[end]:
            self.number += 1
            piece = bytes([self.number % 251]) * size
            self.ends[end].write(connection, piece)
            self.wrote[end][connection] += piece

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), end=END)
    def close(self, data: st.DataObject, end: int) -> None:
        connection = self._one(data)
        if self.ends[end].has(connection):
            self.ends[end].close(connection)
            self.closed[end].add(connection)

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), end=END)
    def reset(self, data: st.DataObject, end: int) -> None:
        self.ends[end].reset(self._one(data))

    @rule(end=END, most=st.integers(1, 3 * PIECE_BYTES))
    def send(self, end: int, most: int) -> None:
        pieces = self.ends[end].take(most)
        assert len(pieces) <= PIECES_MAX
        assert sum(len(piece.data) for piece in pieces) < most + PIECE_BYTES
        self.under_way[end].extend(pieces)

    @precondition(lambda self: any(self.under_way))
    @rule(end=END)
    def arrive(self, end: int) -> None:
        if not self.under_way[1 - end]:
            return
        for event in self.ends[end].received(self.under_way[1 - end].popleft()):
            match event:
                case Opened(connection):
                    assert end == AGENT
                    assert connection in self.opened
                case Received(connection, data):
                    assert connection not in self.closed[end]
                    self.read[end][connection] += data
                    self.unread[end][connection] += len(data)
                case Closed(connection, reset):
                    wrote, read = self.wrote[1 - end][connection], self.read[end][connection]
                    if not reset and connection not in self.closed[end]:
                        assert read == wrote

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), end=END)
    def take(self, data: st.DataObject, end: int) -> None:
        """The reader takes all that it has."""
        connection = self._one(data)
        self.ends[end].took(connection, self.unread[end].pop(connection, 0))

    @invariant()
    def what_is_read_was_written(self) -> None:
        for end in (CONTROL, AGENT):
            for connection, read in self.read[end].items():
                assert self.wrote[1 - end][connection].startswith(read)

    @invariant()
    def a_reader_that_takes_nothing_holds_a_window(self) -> None:
        for unread in self.unread:
            assert all(count <= WINDOW_BYTES for count in unread.values())

    def teardown(self) -> None:
        """Everything arrives in the end where readers go on reading."""
        for _ in range(400):
            for end in (CONTROL, AGENT):
                self.send(end, 3 * PIECE_BYTES)
                while self.under_way[1 - end]:
                    self.arrive(end)
                for connection in self.opened:
                    self.ends[end].took(connection, self.unread[end].pop(connection, 0))
        assert not any(end.sendable for end in self.ends)
        for connection in self.opened:
            has = {end.has(connection) for end in self.ends}
            assert len(has) == 1
            if has == {True}:
                for end in (CONTROL, AGENT):
                    assert self.read[end][connection] == self.wrote[1 - end][connection]


TestEnds = Ends.TestCase


def pair() -> tuple[Multiplexer, Multiplexer, int]:
    """A connection that both ends know."""
    control, agent = Multiplexer(opens=True), Multiplexer(opens=False)
    connection = control.open()
    for piece in control.take(1):
        agent.received(piece)
    return control, agent, connection


def test_connections_take_turns_and_one_that_is_not_read_holds_up_no_other() -> None:
    control, agent, stuck = pair()
    other = control.open()
    control.write(stuck, bytes(8 * WINDOW_BYTES))
    control.write(other, b"small")
    first = control.take(2 * PIECE_BYTES)
    assert [piece.connection for piece in first] == [other, stuck, stuck]
    while pieces := control.take(WINDOW_BYTES):
        first += pieces
    assert sum(len(piece.data) for piece in first if piece.connection == stuck) == WINDOW_BYTES
    control.write(other, b"more")
    assert [piece.data for piece in control.take(1)] == [b"more"]
    for piece in first:
        agent.received(piece)
    agent.took(stuck, WINDOW_BYTES)
    for piece in agent.take(1):
        control.received(piece)
    assert len(control.take(1)[0].data) == PIECE_BYTES


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (Piece(2, data=b"x"), "connection 2 was never opened"),
        (Piece(0, "close"), "connection 0 was never opened"),
        (Piece(1, "open"), "connection 1 was opened after connection 1"),
        (Piece(1, taken_bytes=1), "more was taken than was sent"),
        (Piece(1, data=bytes(WINDOW_BYTES + 1)), "more was sent than its reader had taken"),
        (Piece(1, "shut"), "no event is named 'shut'"),
    ],
)
def test_what_no_honest_end_sends_breaks_the_tunnel(piece: Piece, why: str) -> None:
    _, agent, _ = pair()
    with pytest.raises(TunnelBroken, match=why):
        agent.received(piece)


def test_only_control_opens_and_so_many() -> None:
    control = Multiplexer(opens=True)
    with pytest.raises(TunnelBroken, match="from the end that only accepts"):
        control.received(Piece(1, "open"))
    for _ in range(CONNECTIONS_MAX):
        control.open()
    with pytest.raises(TooManyConnections):
        control.open()
    agent = Multiplexer(opens=False)
    for number in range(1, CONNECTIONS_MAX + 1):
        agent.received(Piece(number, "open"))
    with pytest.raises(TunnelBroken, match="more than"):
        agent.received(Piece(CONNECTIONS_MAX + 1, "open"))


@given(
    st.lists(
        st.builds(
            Piece,
            st.integers(0, 5),
            st.sampled_from(["", "open", "close", "reset", "x"]),
            st.binary(max_size=9),
            st.integers(0, 9),
        ),
        max_size=30,
    )
)
def test_no_pieces_raise_anything_else(pieces: list[Piece]) -> None:
    agent = Multiplexer(opens=False)
    try:
        for piece in pieces:
            agent.received(piece)
            agent.take(100)
    except TunnelBroken:
        pass
