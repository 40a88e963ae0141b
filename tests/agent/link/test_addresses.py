"""Which address of control an agent tries next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.link.addresses import Addresses, after_session, parse_addresses

ADDRESSES = st.lists(st.sampled_from("abcdef"), min_size=1, unique=True).map(tuple)


@st.composite
def states(draw: st.DrawFn) -> Addresses:
    """Any that a history of welcomes and failures leads to."""
    addresses = Addresses(draw(ADDRESSES))
    for welcomed in draw(st.lists(st.booleans(), max_size=12)):
        addresses, _ = after_session(addresses, welcomed=welcomed)
    return addresses


@given(states())
def test_a_round_tries_each_address_once_and_waits_only_at_its_end(addresses: Addresses) -> None:
    addresses, wait = after_session(addresses, welcomed=True)
    assert wait
    tried, waits = [], []
    for _ in range(2 * len(addresses.all)):
        tried.append(addresses.current)
        addresses, wait = after_session(addresses, welcomed=False)
        waits.append(wait)
    count = len(addresses.all)
    assert set(tried[:count]) == set(tried[count:]) == set(addresses.all)
    assert waits == [*[False] * (count - 1), True] * 2


@given(states())
def test_an_agent_stays_at_the_control_that_welcomed_it(addresses: Addresses) -> None:
    assert after_session(addresses, welcomed=True)[0].current == addresses.current


@given(states(), st.data())
def test_the_one_that_leads_is_found_within_a_round(addresses: Addresses, data: st.DataObject) -> None:
    leader = data.draw(st.sampled_from(addresses.all))
    for _ in addresses.all:
        if addresses.current == leader:
            return
        addresses, _ = after_session(addresses, welcomed=False)
    raise AssertionError(f"{leader} was not tried")


def test_a_list_is_read_and_what_is_wrong_with_it_is_said() -> None:
    assert parse_addresses("a:1, b:2").all == ("a:1", "b:2")
    for text in ("", "a:1,", ",a:1"):
        with pytest.raises(ValueError, match="an address is empty: it must read HOST:PORT"):
            parse_addresses(text)
    with pytest.raises(ValueError, match="an address is there twice"):
        parse_addresses("a:1,a:1")
