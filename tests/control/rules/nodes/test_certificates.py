"""What a certificate allows: when it is valid, and which credential it goes with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.nodes.certificates import (
    SKEW_S,
    AuthorityEnded,
    Certified,
    outlived,
    validity,
    why_not_certified,
)

TIMES = st.floats(0, 4e9)
SHOWN = st.none() | st.builds(
    Certified,
    st.sampled_from(["n1", "n2"]),
    st.sampled_from(["c1", "c2"]),
    st.sampled_from([9.0, 10.0, 11.0]),
)


@given(TIMES, st.floats(60, 1e8), TIMES)
def test_no_certificate_outlives_its_authority(now: float, life_s: float, authority_ends: float) -> None:
    if authority_ends <= now:
        with pytest.raises(AuthorityEnded, match="stoker ca rotate"):
            validity(now, life_s, authority_ends)
        return
    begin, end = validity(now, life_s, authority_ends)
    assert begin == now - SKEW_S, "a clock that is behind takes it, too"
    assert end == min(now + life_s, authority_ends)


@given(SHOWN, st.sampled_from(["c1", "c2", None]))
def test_a_credential_is_good_with_its_own_certificate_only(
    shown: Certified | None, credential: str | None
) -> None:
    why = why_not_certified(shown, credential, 10.0)
    own = shown is not None and shown.credential == credential and shown.ends_at > 10.0
    assert (why is None) == (own or credential is None)
    assert why is None or "stoker key create --join" in why, "it says what to do"


@pytest.mark.parametrize(
    ("shown", "sentence"),
    [
        (None, "this node showed none of its own"),
        (Certified("n1", "c1", 10.0), "the certificate of node n1 has ended"),
        (Certified("n1", "c2", 11.0), "goes with another credential"),
    ],
)
def test_the_refusal_says_which_it_is(shown: Certified | None, sentence: str) -> None:
    assert sentence in (why_not_certified(shown, "c1", 10.0) or "")


@given(st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), st.sampled_from([9.0, 10.0, 11.0])))
def test_a_session_ends_with_its_certificate(ends: dict[str, float]) -> None:
    assert outlived(ends, 10.0) == {node for node in ends if ends[node] != 11.0}
