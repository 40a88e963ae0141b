"""What is removed for new weights: the least recently used, never what is in use, and nothing in vain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.weights.room import Kept, Limits, available_bytes, make_room, most_bytes, room_bytes

GB = 1_000_000_000
PLENTY = Limits(100 * GB, 1000 * GB, GB)


def kept(size: int, used_at: float = 0.0, *, busy: bool = False, here: int | None = None) -> Kept:
    """Sizes in GB."""
    return Kept(size * GB, (size if here is None else here) * GB, used_at, busy)


def test_nothing_is_removed_while_there_is_room() -> None:
    assert make_room(40 * GB, 0, {"a": kept(60)}, PLENTY).remove == ()


def test_the_least_recently_used_goes_first_and_no_more_than_needed() -> None:
    others = {"new": kept(30, 9.0), "old": kept(30, 1.0), "older": kept(30, 0.5)}
    assert make_room(40 * GB, 0, others, PLENTY).remove == ("older",)
    assert make_room(41 * GB, 0, others, PLENTY).remove == ("older", "old")


def test_what_is_in_use_stays() -> None:
    others = {"used": kept(60, 0.0, busy=True), "idle": kept(30, 5.0)}
    assert make_room(40 * GB, 0, others, PLENTY).remove == ("idle",)
    decision = make_room(41 * GB, 0, others, PLENTY)
    assert (decision.remove, decision.definite) == ((), False)
    assert decision.why_not == "has 41.0 GB; 60.0 GB of at most 100.0 GB are in use"


def test_what_never_fits_is_said_to_be_so() -> None:
    decision = make_room(101 * GB, 0, {"idle": kept(30)}, PLENTY)
    assert (decision.remove, decision.definite) == ((), True)
    assert decision.why_not == "has 101.0 GB, and this node keeps at most 100.0 GB"


def test_the_disk_counts_with_what_others_still_fetch() -> None:
    others = {"fetched": kept(50, busy=True, here=10)}
    assert make_room(20 * GB, 0, others, Limits(100 * GB, 61 * GB, GB)).why_not == ""
    tight = Limits(100 * GB, 60 * GB, GB)
    assert make_room(20 * GB, 0, others, tight).why_not == "has 20.0 GB, and the disk lacks 1.0 GB for it"
    assert make_room(20 * GB, GB, others, tight).why_not == "", "a part of it is there already"


def test_what_was_broken_off_counts_as_what_is_there_and_goes_too() -> None:
    assert make_room(100 * GB, 0, {"part": kept(50, here=1)}, PLENTY).remove == ("part",)
    assert make_room(99 * GB, 0, {"part": kept(50, here=1)}, PLENTY).remove == ()


ENTRIES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        lambda size, here, used_at, busy: Kept(size, min(here, size), used_at, busy),
        st.integers(0, 50),
        st.integers(0, 50),
        st.sampled_from([0.0, 1.0, 2.0, 3.0]),
        st.booleans(),
    ),
)
LIMITS = st.builds(Limits, st.integers(0, 100), st.integers(0, 100), st.integers(0, 5))


@given(st.integers(0, 120), st.integers(0, 60), ENTRIES, LIMITS)
def test_room_is_made_within_the_bound_or_not_at_all(
    size: int, here: int, others: dict[str, Kept], limits: Limits
) -> None:
    here = min(here, size)
    decision = make_room(size, here, others, limits)

    def fits(removed: tuple[str, ...]) -> bool:
        left = {name: one for name, one in others.items() if name not in removed}
        counted = sum(one.size_bytes if one.busy else one.here_bytes for one in left.values())
        coming = sum(one.size_bytes - one.here_bytes for one in left.values() if one.busy)
        freed = sum(others[name].here_bytes for name in removed)
        on_disk = limits.free_bytes + freed - coming - (size - here) >= limits.reserve_bytes
        return counted + size <= limits.most_bytes and on_disk

    idle = sorted((one.used_at, name) for name, one in others.items() if not one.busy)
    assert decision.remove == tuple(name for _, name in idle[: len(decision.remove)])
    if decision.why_not:
        assert decision.remove == ()
        assert not fits(tuple(name for _, name in idle)), "it refuses only what would not fit"
    else:
        assert fits(decision.remove)
        assert not decision.remove or not fits(decision.remove[:-1]), "the last was needed"


@given(st.integers(0, 120), ENTRIES, LIMITS)
def test_what_is_reported_is_what_would_be_decided(
    size: int, others: dict[str, Kept], limits: Limits
) -> None:
    decision = make_room(size, 0, others, limits)
    fits_now = not decision.why_not and not decision.remove
    assert (size <= room_bytes(others.values(), limits)) == fits_now or size == 0
    assert (size <= available_bytes(others.values(), limits)) == (not decision.why_not) or size == 0
    if not any(one.busy for one in others.values()):
        fits = not decision.why_not
        assert (size <= most_bytes(others.values(), limits)) == fits or size == 0
