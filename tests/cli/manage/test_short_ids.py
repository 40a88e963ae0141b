"""What was typed for an id: the id, a name, or a beginning that only one id has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.errors import CliError
from stoker.cli.manage.key_commands import _named
from stoker.cli.short_ids import resolve_id
from stoker.control.rules.access import Access

IDS = st.lists(st.text("abc", min_size=1, max_size=4), unique=True, max_size=6)


@given(IDS, st.text("abc", max_size=4))
def test_a_beginning_means_the_one_id_that_has_it(ids: list[str], typed: str) -> None:
    begun = [id_ for id_ in ids if id_.startswith(typed)] if typed else []
    known = [(id_, "") for id_ in ids]
    if typed in ids:
        assert resolve_id(typed, known, "jobs") == typed
    elif len(begun) > 1:
        with pytest.raises(CliError, match=f"{len(begun)} jobs have ids that begin with {typed}"):
            resolve_id(typed, known, "jobs")
    else:
        assert resolve_id(typed, known, "jobs") == (begun[0] if begun else None)


def test_an_id_goes_over_a_name_and_a_name_over_a_beginning() -> None:
    known = [("abc", "x"), ("abd", "abc"), ("x", "y"), ("abce", "ab")]
    assert resolve_id("abc", known, "pods") == "abc"
    assert resolve_id("x", known, "pods") == "x"
    assert resolve_id("ab", known, "pods") == "abce"
    with pytest.raises(CliError, match="2 pods are called twin: name one by its id: a, b"):
        resolve_id("twin", [("a", "twin"), ("b", "twin")], "pods")


def test_a_right_is_for_the_endpoint_whose_id_begins_so() -> None:
    wanted = Access("restricted", "none", {"cap": "write", "talk": "read", "*": "none"})
    named = _named(wanted, {"caption", "other", "talking-video"}, {"talk": "talking-video"}, all_known=True)
    assert named.endpoints == {"caption": "write", "talking-video": "read", "*": "none"}


def test_many_matching_ids_are_not_all_listed() -> None:
    with pytest.raises(CliError, match=r"9 jobs have ids that begin with j: j0, j1, j2, j3, j4, …"):
        resolve_id("j", [(f"j{n}", "") for n in range(9)], "jobs")
