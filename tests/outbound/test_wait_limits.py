"""The rule of waits: who gets a slot, who never goes without, and what is given back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.outbound import wait_limits
from stoker.outbound.wait_limits import OTHERS, OWN, Group, Waiter, WaitRule, give_back, levels, take

RULE = WaitRule(slots=32, own_slots=8)
WAITERS = st.builds(
    Waiter,
    st.sampled_from("ab"),
    st.sampled_from("kl"),
    st.sampled_from("ef"),
    st.sampled_from("uvwxyz"),
    st.booleans(),
)
WANTED = st.lists(WAITERS, max_size=200)


def shared_out(wanted: list[Waiter], rule: WaitRule = RULE) -> Counter[Group]:
    """Who holds which slots, where none is ever given back."""
    held = Counter[Group]()
    for waiter in wanted:
        if rule.admits(held, waiter):
            take(held, waiter.group)
    return held


@given(WANTED)
def test_whatever_others_hold_a_new_account_key_and_endpoint_find_a_slot(wanted: list[Waiter]) -> None:
    held = shared_out(wanted)
    assert RULE.admits(held, Waiter("new", "k", "e", "u"))
    one_account = shared_out([Waiter("a", one.key, one.endpoint, one.host) for one in wanted])
    assert RULE.admits(one_account, Waiter("a", "new", "e", "u"))
    one_key = shared_out([Waiter("a", "k", one.endpoint, one.host) for one in wanted])
    assert RULE.admits(one_key, Waiter("a", "k", "new", "u"))


@given(WANTED)
def test_whatever_others_hold_the_platforms_own_store_has_its_slots(wanted: list[Waiter]) -> None:
    held = shared_out([one for one in wanted if not one.own])
    own = [Waiter(account, "k", "e", "store", own=True) for account in "abcdefgh"]
    for waiter in own[:3]:
        assert RULE.admits(held, waiter)
        take(held, waiter.group)
    assert held[OTHERS,] <= RULE.slots
    assert held[OWN,] == 3


@given(WANTED)
def test_no_group_holds_more_than_its_part(wanted: list[Waiter]) -> None:
    held = shared_out(wanted)
    assert held[OTHERS,] <= RULE.slots
    assert held[OWN,] <= RULE.own_slots
    for group, count in held.items():
        above = RULE.own_slots if group[0] == OWN else RULE.slots
        assert count <= max(above >> len(group) - 1, 1) + 1


@given(WANTED, st.randoms())
def test_slots_that_are_given_back_leave_no_trace(wanted: list[Waiter], order: object) -> None:
    held, holding = Counter[Group](), list[Waiter]()
    for waiter in wanted:
        if RULE.admits(held, waiter):
            take(held, waiter.group)
            holding.append(waiter)
    for level in {level for waiter in holding for level in levels(waiter.group)}:
        inside = sum(waiter.group[: len(level)] == level for waiter in holding)
        assert held[level] == inside
    order.shuffle(holding)  # type: ignore[attr-defined]
    for waiter in holding:
        give_back(held, waiter.group)
    assert not held


@given(WANTED, st.lists(WAITERS, min_size=1, max_size=30), st.randoms())
def test_nobody_starves_as_long_as_slots_are_given_back(
    holding: list[Waiter], queue: list[Waiter], order: object
) -> None:
    """In whatever order: `outbound.waits` asks for the first in the queue that may have a slot."""
    held, inside, waiting = Counter[Group](), list[Waiter](), list(queue)
    for waiter in holding:
        if RULE.admits(held, waiter):
            take(held, waiter.group)
            inside.append(waiter)
    while inside:
        order.shuffle(inside)  # type: ignore[attr-defined]
        give_back(held, inside.pop().group)
        for waiter in tuple(waiting):
            if RULE.admits(held, waiter):
                take(held, waiter.group)
                waiting.remove(waiter)
                inside.append(waiter)
    assert waiting == [] or not holding


@given(WANTED, st.sampled_from([(OTHERS,), (OTHERS, "a"), (OTHERS, "a", "k"), (OWN, "b")]))
def test_the_full_groups_are_those_whose_waiters_get_nothing(wanted: list[Waiter], within: Group) -> None:
    held = shared_out(wanted)
    full = RULE.full_groups(held, within)
    inside = [one for one in wanted if one.group[: len(within)] == within]
    for waiter in inside:
        named = full is None or any(waiter.group[: len(group)] == group for group in full)
        assert named != RULE.admits(held, waiter)


def test_one_caller_gets_an_eighth_and_one_host_of_it_a_sixteenth() -> None:
    assert shared_out([Waiter("a", "k", "e", "x")] * 32)[OTHERS,] == 32 // 16
    many = shared_out([Waiter("a", "k", "e", str(n)) for n in range(32)])
    assert many[OTHERS,] == 32 // 8
    assert shared_out([Waiter("a", str(n), "e", "x") for n in range(32)])[OTHERS,] == 32 // 2


def test_the_only_slot_is_held_by_one_at_a_time() -> None:
    rule, held = WaitRule(slots=1), Counter[Group]()
    assert rule.admits(held, Waiter("a"))
    take(held, Waiter("a").group)
    assert not rule.admits(held, Waiter("b"))
    assert not rule.admits(held, Waiter("a", own=True)), "it has no own slots"


@pytest.mark.parametrize(
    "rule",
    [wait_limits.UPLOADS, wait_limits.INPUTS, wait_limits.WEBHOOKS, wait_limits.TUNNELS, wait_limits.BODIES],
)
def test_each_kind_of_wait_has_a_deadline_and_room_for_three_greedy_accounts(rule: WaitRule) -> None:
    assert 0 < rule.within_s() < rule.within_s(1 << 30) < 86_400
    greedy = [Waiter(account, str(n), str(n), str(n)) for n in range(rule.slots) for account in "abc"]
    assert rule.admits(shared_out(greedy, rule), Waiter("new"))
