"""What `wire.streams` promises, of the pair in memory and of gRPC alike."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import pytest

from stoker.wire.messages import (
    Ack,
    Assign,
    Beat,
    FromAgent,
    FromControl,
    Progress,
    Refusal,
    Report,
)
from stoker.wire.streams import AgentStream, ControlStream, StreamEnded

MIB = 1024 * 1024


class Pair(Protocol):
    agent: AgentStream
    control: ControlStream


def beat(number: int) -> FromAgent:
    return FromAgent(beat=Beat(number))


def ack(number: int) -> FromControl:
    return FromControl(ack=Ack(number))


async def test_a_word_each_way(pair: Pair) -> None:
    await pair.agent.send(beat(1))
    assert await pair.control.receive() == beat(1)
    await pair.control.send(ack(1))
    assert await pair.agent.receive() == ack(1)


async def test_messages_arrive_in_order_each_once(pair: Pair) -> None:
    for n in range(500):
        await pair.agent.send(beat(n))
        await pair.control.send(ack(n))
    assert [await pair.control.receive() for _ in range(500)] == [beat(n) for n in range(500)]
    assert [await pair.agent.receive() for _ in range(500)] == [ack(n) for n in range(500)]


async def test_what_has_come_already_is_given_at_once(pair: Pair) -> None:
    for n in range(3):
        await pair.agent.send(beat(n))
    pair.agent.end("done")
    got: list[FromAgent] = []
    while len(got) < 3:
        got += await pair.control.receive_all()
    assert got == [beat(n) for n in range(3)]
    with pytest.raises(StreamEnded):
        await pair.control.receive()
    with pytest.raises(StreamEnded):
        await pair.control.receive_all()


async def test_large_messages_among_small_ones(pair: Pair) -> None:
    up = FromAgent(reports=(Report(1, Progress("job", 1, bytes(range(256)) * (5 * MIB // 256))),))
    down = FromControl(assigns=(Assign("job", 1, "w", b"y" * 5 * MIB),))
    for message in (beat(1), up, beat(2)):
        await pair.agent.send(message)
    for order in (ack(1), down, ack(2)):
        await pair.control.send(order)
    assert [await pair.control.receive() for _ in range(3)] == [beat(1), up, beat(2)]
    assert [await pair.agent.receive() for _ in range(3)] == [ack(1), down, ack(2)]


async def test_sending_does_not_wait_for_a_slow_reader(pair: Pair) -> None:
    # 3 MiB lie unread while words go the other way.
    big = FromAgent(reports=(Report(1, Progress("job", 1, b"x" * 3 * MIB)),))
    await pair.agent.send(big)
    await pair.control.send(ack(1))
    assert await pair.agent.receive() == ack(1)
    assert await pair.control.receive() == big


async def test_what_was_sent_before_the_end_is_received(pair: Pair) -> None:
    big = FromControl(assigns=(Assign("job", 1, "w", b"y" * MIB),))
    await pair.control.send(big)
    await pair.control.send(FromControl(refusal=Refusal("no")))
    pair.control.end("refused")
    assert await pair.agent.receive() == big
    assert await pair.agent.receive() == FromControl(refusal=Refusal("no"))
    with pytest.raises(StreamEnded):
        await pair.agent.receive()


async def test_the_same_from_the_agents_side(pair: Pair) -> None:
    for n in range(100):
        await pair.agent.send(beat(n))
    pair.agent.end()
    assert [await pair.control.receive() for _ in range(100)] == [beat(n) for n in range(100)]
    with pytest.raises(StreamEnded):
        await pair.control.receive()


@pytest.mark.parametrize("side", ["agent", "control"])
async def test_the_end_wakes_both_sides(pair: Pair, side: str) -> None:
    waiting = [asyncio.create_task(end.receive()) for end in _ends(pair)]
    await _until_both_wait()
    getattr(pair, side).end("enough")
    for task in waiting:
        with pytest.raises(StreamEnded):
            await task


@pytest.mark.parametrize("side", ["agent", "control"])
async def test_after_the_end_nothing_goes(pair: Pair, side: str) -> None:
    end: Any = getattr(pair, side)
    end.end("enough")
    end.end("again")
    with pytest.raises(StreamEnded, match="enough"):
        await end.send(beat(1) if side == "agent" else ack(1))
    for _ in range(2):
        with pytest.raises(StreamEnded, match="enough"):
            await end.receive()


async def test_the_other_side_learns_why_control_ended(pair: Pair) -> None:
    pair.control.end("another agent took over")
    with pytest.raises(StreamEnded, match="another agent took over"):
        await pair.agent.receive()


async def test_giving_up_on_receive_loses_nothing(pair: Pair) -> None:
    # A shell waits for a message with a timeout; with gRPC's own read that would end the call.
    for end in _ends(pair):
        task = asyncio.create_task(end.receive())
        await _until_both_wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await pair.agent.send(beat(1))
    await pair.control.send(ack(1))
    assert await pair.control.receive() == beat(1)
    assert await pair.agent.receive() == ack(1)


def _ends(pair: Pair) -> tuple[Any, Any]:
    return pair.agent, pair.control


async def _until_both_wait() -> None:
    """Some turns of the loop: tasks that were made have begun to wait."""
    for _ in range(5):
        await asyncio.sleep(0)
