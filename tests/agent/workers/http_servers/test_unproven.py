"""Who waits with a connection that has brought no proof, and who goes for a newcomer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.workers.http_servers.unproven import ADDRESSES, FROM_ONE, KNOWN, STRANGERS, Waiting

STEPS = st.lists(st.tuples(st.sampled_from(["add", "proven", "remove"]), st.integers(0, 40)), max_size=400)


def filled(address: str, count: int) -> Waiting[str]:
    waiting = Waiting[str]()
    for n in range(count):
        waiting.add(f"{address}-{n}", address)
    return waiting


@given(STEPS)
def test_a_newcomer_has_a_place_and_nobody_more_than_its_share(steps: list[tuple[str, int]]) -> None:
    waiting, of, known = Waiting[int](), dict[int, str](), set[str]()
    for number, (step, n) in enumerate(steps):
        if step == "add":
            address = f"10.0.0.{n % 12}"
            if (gone := waiting.add(number, address)) is not None:
                del of[gone]
            of[number] = address
            assert number in waiting
        elif of:
            one = sorted(of)[n % len(of)]
            if step == "proven":
                known.add(of[one])
                waiting.proven(one)
            else:
                waiting.remove(one)
            del of[one]
        assert len(waiting) == len(of)
        counts = {address: list(of.values()).count(address) for address in of.values()}
        assert all(count <= (KNOWN if one in known else FROM_ONE) for one, count in counts.items())
        assert sum(count for one, count in counts.items() if one not in known) <= STRANGERS


def test_the_oldest_of_an_address_goes_for_its_next() -> None:
    waiting = filled("a", FROM_ONE)
    assert waiting.add("a-new", "a") == "a-0"
    assert waiting.add("b-0", "b") is None


def test_when_all_places_are_taken_who_has_the_most_gives_one() -> None:
    waiting = Waiting[str]()
    for n in range(STRANGERS - FROM_ONE):
        waiting.add(f"one-{n}", f"one-{n}")
    for n in range(FROM_ONE):
        waiting.add(f"many-{n}", "many")
    assert waiting.add("newcomer", "newcomer") == "many-0"
    assert len(waiting) == STRANGERS


def test_an_address_that_brought_proof_has_places_of_its_own() -> None:
    waiting = filled("control", 1)
    waiting.proven("control-0")
    for n in range(STRANGERS):
        assert waiting.add(f"s-{n}", f"s-{n}") is None
    for n in range(KNOWN):
        assert waiting.add(f"c-{n}", "control") is None
    assert waiting.add("c-new", "control") == "c-0"


def test_addresses_are_forgotten_for_newer_ones() -> None:
    waiting = Waiting[str]()
    for n in range(ADDRESSES + 1):
        waiting.add(f"{n}", f"address-{n}")
        waiting.proven(f"{n}")
    for n in range(FROM_ONE):
        waiting.add(f"again-{n}", "address-0")
    assert waiting.add("again", "address-0") == "again-0"
    waiting.proven("gone before")
    waiting.remove("gone before")
