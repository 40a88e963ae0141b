"""When a node's disk is full."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.nodes.disk import FREE, LEAST_BYTES, LEAST_SHARE, TOTAL, bytes_of, full


def facts(free: int, total: int) -> dict[str, str]:
    return {FREE: str(free), TOTAL: str(total)}


def test_a_full_disk_is_told_in_numbers() -> None:
    assert full(facts(300_000_000, 10**12)) == (
        "has 0.30 GB of disk free, and takes nothing new with less than 0.50 GB"
    )
    assert full(facts(LEAST_BYTES, 10**12)) == ""
    assert full(facts(2_000_000, 64_000_000)) == "", "a small disk has less to spare"
    assert full(facts(1_000_000, 64_000_000))


def test_what_a_node_does_not_tell_is_not_held_against_it() -> None:
    for told in ({}, {FREE: "1"}, {TOTAL: "1"}, {FREE: "-1", TOTAL: "5"}, {FREE: "", TOTAL: "x"}):
        assert full(told) == ""


@given(st.text("0123456789²٣-.e", max_size=400), st.text("0123456789²٣-.e", max_size=400))
def test_no_fact_of_a_node_is_an_error(free: str, total: str) -> None:
    """Placement looks at all nodes: what one tells must not end it for the others."""
    assert isinstance(full({FREE: free, TOTAL: total}), str)


def test_a_number_that_no_float_can_hold_is_not_believed() -> None:
    assert full({FREE: "1" * 400, TOTAL: "9" * 400}) == ""
    assert bytes_of({FREE: "9" * 19}, FREE) is None
    assert bytes_of({FREE: "12"}, FREE) == 12


@given(st.integers(0, 10**15), st.integers(1, 10**15))
def test_more_room_never_makes_a_disk_full(free: int, total: int) -> None:
    assert bool(full(facts(free, total))) == (free < min(LEAST_BYTES, int(total * LEAST_SHARE)))
    assert full(facts(free, total)) or not full(facts(free + 1, total))
