"""Waits: who comes next, what a cancel and a deadline give back, and that blocking work ends."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from stoker.outbound.line import LineEnded, in_use
from stoker.outbound.wait_limits import Waiter, WaitRule
from stoker.outbound.waits import TooManyWaits, Waits, WaitTooLong


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def caller(account: str) -> Waiter:
    return Waiter(account, "k", "e", "x")


async def test_the_first_to_come_gets_the_next_slot_that_it_may_have() -> None:
    waits, began = Waits(WaitRule(slots=2)), list[str]()

    async def user(waiter: Waiter, name: str) -> None:
        async with waits.slot(waiter):
            began.append(name)
            await asyncio.Event().wait()

    users = [asyncio.create_task(user(caller("a"), f"a{n}")) for n in range(4)]
    users.append(asyncio.create_task(user(caller("b"), "b")))
    await _settled()
    assert began == ["a0", "b"]
    users[1].cancel()  # it waits, and goes without a trace
    users[0].cancel()
    await _settled()
    assert began == ["a0", "b", "a2"]
    for one in users:
        one.cancel()
    await asyncio.gather(*users, return_exceptions=True)
    await waits.acquire(caller("c"))
    with pytest.raises(TooManyWaits):
        waits.take_now(caller("c"))
    with waits.take_now(caller("d")):
        pass


async def test_a_slot_that_came_to_one_who_is_just_leaving_goes_to_the_next() -> None:
    waits = Waits(WaitRule(slots=1))
    await waits.acquire(caller("a"))
    first, second = (asyncio.create_task(waits.acquire(caller(name))) for name in "bc")
    await _settled()
    waits.release(caller("a"))
    first.cancel()
    await second
    assert first.cancelled()


async def test_blocking_work_holds_its_slot_until_its_thread_has_ended() -> None:
    waits, go = Waits(WaitRule(slots=1)), threading.Event()
    hanging = asyncio.create_task(waits.run(caller("a"), "hangs", go.wait, 600.0))
    await _settled()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    waiting = asyncio.create_task(waits.run(caller("b"), "waits", lambda: 7, 600.0))
    await _settled()
    assert not waiting.done()
    go.set()
    assert await waiting == 7


@pytest.mark.parametrize("how", ["deadline", "cancel", "close"])
async def test_work_that_waits_at_a_socket_is_ended_with_its_wait(how: str) -> None:
    """Nobody ever sends a byte. The thread ends all the same, and its slot is free."""
    waits, ours_theirs = Waits(WaitRule(slots=1)), socket.socketpair()
    ours, theirs = ours_theirs
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang() -> bytes:
        in_use(ours)
        loop.call_soon_threadsafe(began.set)
        ours.recv(1)  # returns when the line is ended
        in_use(ours)  # the next connection of this call is refused
        return b""

    hanging = asyncio.create_task(waits.run(caller("a"), "hangs", hang, 0.05 if how == "deadline" else 600.0))
    await began.wait()
    if how == "cancel":
        hanging.cancel()
    if how == "close":
        await waits.close(60.0)
    expected = {"deadline": WaitTooLong, "cancel": asyncio.CancelledError, "close": LineEnded}[how]
    with pytest.raises(expected):
        await hanging
    assert await waits.run(caller("b"), "next", lambda: 7, 600.0) == 7
    ours.close()
    theirs.close()
