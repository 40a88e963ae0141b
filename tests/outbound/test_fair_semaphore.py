"""Places that are shared out by account and host: the rule, and who waits for whom."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.outbound.fair_semaphore import FairSemaphore
from stoker.outbound.fair_shares import Requester, account_is_full, admits

MOST = 32
WANTED = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("uvwxyz")), max_size=200)


def shared_out(wanted: list[Requester], most: int = MOST) -> Counter[Requester]:
    """Who has which places, where none is ever given back."""
    held = Counter[Requester]()
    for requester in wanted:
        if admits(held, requester, most):
            held[requester] += 1
    return held


@given(WANTED)
def test_whatever_three_accounts_want_a_fourth_finds_a_slot(wanted: list[Requester]) -> None:
    held = shared_out(wanted)
    assert admits(held, ("new", "u"), MOST)
    assert held.total() < MOST
    for account in "abc":
        assert sum(count for (one, _), count in held.items() if one == account) <= MOST // 2


@given(st.integers(min_value=1, max_value=3))
def test_hosts_of_an_account_that_hold_all_they_get_leave_a_slot_for_its_next_host(hosts: int) -> None:
    greedy = [("a", str(n)) for n in range(hosts) for _ in range(MOST)]
    assert admits(shared_out(greedy), ("a", "new"), MOST)


@given(WANTED, st.tuples(st.sampled_from("abc"), st.sampled_from("uvwxyz")))
def test_an_account_that_is_full_admits_none_of_its_hosts(
    wanted: list[Requester], requester: Requester
) -> None:
    held = shared_out(wanted)
    if account_is_full(held, requester[0], MOST):
        assert not admits(held, requester, MOST)
    elif held[requester] == 0:
        assert admits(held, requester, MOST)


def test_one_account_alone_gets_half_and_one_host_alone_a_quarter() -> None:
    assert shared_out([("a", "x")] * MOST) == {("a", "x"): MOST // 4}
    many = shared_out([("a", str(n)) for n in range(MOST)])
    assert many.total() == MOST // 2


def test_the_only_slot_is_held_by_one_at_a_time() -> None:
    assert admits({}, ("a", "x"), 1)
    assert not admits({("a", "x"): 1}, ("b", "y"), 1)


# ---- semaphore --------------------------------------------------------------------------------------


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_first_to_come_gets_the_next_slot_that_it_may_have() -> None:
    semaphore, began = FairSemaphore(4), list[str]()

    async def user(requester: Requester, name: str) -> None:
        async with semaphore.slot(requester):
            began.append(name)
            await asyncio.Event().wait()

    users = [asyncio.create_task(user(("a", "x"), f"a{n}")) for n in range(4)]
    users.append(asyncio.create_task(user(("b", "x"), "b")))
    await _settled()
    assert began == ["a0", "b"]  # one of two, and of b's as many
    users[1].cancel()  # it waits, and goes without a trace
    users[0].cancel()
    await _settled()
    assert began == ["a0", "b", "a2"]
    for one in users:
        one.cancel()
    await asyncio.gather(*users, return_exceptions=True)
    await semaphore.acquire(("c", "z"))


async def test_a_slot_that_came_to_one_who_is_just_leaving_goes_to_the_next() -> None:
    semaphore = FairSemaphore(1)
    await semaphore.acquire(("a", "x"))
    first, second = (asyncio.create_task(semaphore.acquire((name, "x"))) for name in "bc")
    await _settled()
    semaphore.release(("a", "x"))
    first.cancel()
    await second
    assert first.cancelled()


async def test_blocking_work_holds_its_slot_until_its_thread_has_ended() -> None:
    semaphore, go = FairSemaphore(1), threading.Event()
    hanging = asyncio.create_task(semaphore.run_in_thread(("a", "x"), "hangs", go.wait))
    await _settled()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    waiting = asyncio.create_task(semaphore.run_in_thread(("b", "x"), "waits", lambda: 7))
    await _settled()
    assert not waiting.done()
    go.set()
    assert await waiting == 7
