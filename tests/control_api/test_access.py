"""What a key may do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.access import ALL, NOTHING, Access

RIGHTS = st.sampled_from(["none", "read", "write"])
NAMES = st.sampled_from(["echo", "other", "*"])
ACCESSES = st.tuples(
    st.sampled_from(["all", "read", "restricted"]), RIGHTS, st.dictionaries(NAMES, RIGHTS)
).map(lambda drawn: Access(*drawn))
LADDER = ("none", "read", "write")


@given(ACCESSES, NAMES)
def test_who_may_change_may_look_and_nobody_may_more_than_all(access: Access, name: str) -> None:
    assert access.manages(write=False) or not access.manages(write=True)
    assert access.calls(name, write=False) or not access.calls(name, write=True)
    assert ALL.manages(write=True)
    assert ALL.calls(name, write=True)
    assert ALL.keys
    assert not access.keys or access.scope == "all"


@given(ACCESSES, NAMES)
def test_looking_is_not_changing(access: Access, name: str) -> None:
    if access.scope == "read":
        assert not access.manages(write=True)
        assert not access.calls(name, write=True)
        assert access.manages(write=False)
        assert access.calls(name, write=False)


@given(RIGHTS, RIGHTS, RIGHTS, NAMES, st.booleans())
def test_more_right_is_never_less(management: str, right: str, more: str, name: str, write: bool) -> None:
    if LADDER.index(more) < LADDER.index(right):
        right, more = more, right
    weak, strong = (
        Access("restricted", each, {name: each, "*": management})  # type: ignore[arg-type]
        for each in (right, more)
    )
    assert strong.calls(name, write=write) or not weak.calls(name, write=write)
    assert strong.manages(write=write) or not weak.manages(write=write)


@given(ACCESSES)
def test_what_is_stored_says_the_same(access: Access) -> None:
    again = Access.parse(access.stored())
    for write in (False, True):
        assert again.manages(write=write) == access.manages(write=write)
        for name in ("echo", "other", "unnamed"):
            assert again.calls(name, write=write) == access.calls(name, write=write)
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
    assert access.calls(name, write=write) is may
    assert not access.manages(write=False)


def test_nothing_is_nothing() -> None:
    assert not NOTHING.manages(write=False)
    assert not NOTHING.calls("echo", write=False)
    assert not NOTHING.keys
