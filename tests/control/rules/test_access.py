"""What a key may do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.access import ALL, NOTHING, Access

RIGHTS = st.sampled_from(["none", "read", "write"])
NAMES = st.sampled_from(["echo", "other", "*"])
ACCESSES = st.tuples(
    st.sampled_from(["all", "read", "restricted"]), RIGHTS, st.dictionaries(NAMES, RIGHTS), st.booleans()
).map(lambda drawn: Access(*drawn[:3], cases=drawn[3]))
LADDER = ("none", "read", "write")


@given(ACCESSES, NAMES)
def test_who_may_change_may_look_and_nobody_may_more_than_all(access: Access, name: str) -> None:
    assert access.may(write=False) or not access.may(write=True)
    assert access.may(write=False, endpoint=name) or not access.may(write=True, endpoint=name)
    assert ALL.may(write=True)
    assert ALL.may(write=True, endpoint=name)
    assert ALL.keys
    assert not access.keys or access.scope == "all"


@given(ACCESSES, NAMES)
def test_looking_is_not_changing(access: Access, name: str) -> None:
    if access.scope == "read":
        assert not access.may(write=True)
        assert not access.may(write=True, endpoint=name)
        assert access.may(write=False)
        assert access.may(write=False, endpoint=name)


@given(RIGHTS, RIGHTS, RIGHTS, NAMES, st.booleans())
def test_more_right_is_never_less(management: str, right: str, more: str, name: str, write: bool) -> None:
    if LADDER.index(more) < LADDER.index(right):
        right, more = more, right
    weak, strong = (
        Access("restricted", each, {name: each, "*": management})  # type: ignore[arg-type]
        for each in (right, more)
    )
    assert strong.may(write=write, endpoint=name) or not weak.may(write=write, endpoint=name)
    assert strong.may(write=write) or not weak.may(write=write)


@given(ACCESSES, NAMES)
def test_cases_are_read_by_who_may_look_and_was_given_the_right(access: Access, name: str) -> None:
    may = access.may_read_cases(name)
    assert not may or access.may(write=False, endpoint=name)
    assert may or access.scope != "all"
    assert not may or access.cases or access.scope == "all"
    assert Access.parse(access.stored()).may_read_cases(name) == may or access.scope != "restricted"
    assert not Access("read").may_read_cases(name)


@given(ACCESSES)
def test_what_is_stored_says_the_same(access: Access) -> None:
    again = Access.parse(access.stored())
    for write in (False, True):
        assert again.may(write=write) == access.may(write=write)
        for name in ("echo", "other", "unnamed"):
            assert again.may(write=write, endpoint=name) == access.may(write=write, endpoint=name)
    assert again.keys == access.keys


def test_a_key_from_before_there_were_scopes_may_everything() -> None:
    assert Access.parse("{}") == ALL


@pytest.mark.parametrize(
    ("name", "write", "may"),
    [
        ("echo", True, True),
        ("shown", False, True),
        ("shown", True, False),
        ("hidden", False, False),
        ("unnamed", False, True),
        ("unnamed", True, False),
    ],
)
def test_an_endpoint_that_is_not_named_is_as_the_star_says(name: str, write: bool, may: bool) -> None:
    access = Access("restricted", "none", {"*": "read", "echo": "write", "shown": "read", "hidden": "none"})
    assert access.may(write=write, endpoint=name) is may
    assert not access.may(write=False)


@pytest.mark.parametrize(
    ("method", "path", "may"),
    [
        ("GET", "/pods/p1", True),
        ("POST", "/pods/p1/stop", True),
        ("PATCH", "/pods/p1", False),
        ("DELETE", "/pods/p1", False),
        ("POST", "/pods/p1/start", False),
        ("GET", "/pods/p2", False),
        ("POST", "/pods/p2/stop", False),
        ("GET", "/pods", False),
    ],
)
def test_a_pods_key_reads_and_stops_that_pod(method: str, path: str, may: bool) -> None:
    access = Access.parse(Access("pod", pod="p1").stored())
    assert access.is_own_pod(method, path) is may
    assert not access.may(write=False)
    assert not access.may(write=False, endpoint="echo")
    assert not access.keys
    assert not Access("restricted", pod="p1").is_own_pod(method, path)


def test_nothing_is_nothing() -> None:
    assert not NOTHING.may(write=False)
    assert not NOTHING.may(write=False, endpoint="echo")
    assert not NOTHING.keys
