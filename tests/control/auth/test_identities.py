"""What the groups of a token allow, and when an issuer's keys are fetched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.auth.identities import (
    FRESH_S,
    ROLES,
    STALE_S,
    TRY_EVERY_S,
    KnownKeys,
    Role,
    access_of,
    groups_of,
    is_secured,
    is_token,
    must_fetch,
    subject_of,
    usable,
)

GROUPS = st.sampled_from(["ops", "devs", "guests", "nobody"])
RIGHTS: dict[str, Role] = {"ops": "all", "devs": "write", "guests": "read"}


@given(st.frozensets(GROUPS))
def test_the_strongest_group_counts_and_no_other_group_adds_anything(groups: frozenset[str]) -> None:
    access = access_of(groups, RIGHTS)
    strongest: Role | None = (
        "all" if "ops" in groups else "write" if "devs" in groups else "read" if "guests" in groups else None
    )
    assert access == (None if strongest is None else ROLES[strongest])
    assert access == access_of(groups - {"nobody"}, RIGHTS)


def test_each_right_allows_no_more_than_it_says() -> None:
    can = {
        role: (
            access.may(write=False),
            access.may(write=True),
            access.may(write=True, endpoint="e"),
            access.keys,
        )
        for role, access in ROLES.items()
    }
    assert can == {
        "read": (True, False, False, False),
        "write": (True, True, False, False),
        "all": (True, True, True, True),
    }
    assert ROLES["write"].may(write=False, endpoint="e")


@pytest.mark.parametrize(
    ("claims", "claim", "found"),
    [
        ({"groups": ["a", "b"]}, "groups", {"a", "b"}),
        ({"scope": "a b"}, "scope", {"a", "b"}),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", {"a"}),
        ({"https://example.com/groups": ["a"]}, "https://example.com/groups", {"a"}),
        ({"groups": ["a", 1, None, ["b"]]}, "groups", {"a"}),
        ({"groups": {"a": True}}, "groups", set()),
        ({"groups": 7}, "groups.a", set()),
        ({}, "groups", set()),
    ],
)
def test_groups_are_read_in_the_shapes_that_issuers_have(
    claims: dict[str, Any], claim: str, found: set[str]
) -> None:
    assert groups_of(claims, claim) == found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["groups", "a", "sub"]), JSON),
    st.sampled_from(["groups", "a.groups", ""]),
)
def test_no_claims_are_an_error(claims: dict[str, Any], claim: str) -> None:
    assert all(isinstance(group, str) for group in groups_of(claims, claim))
    subject = subject_of(claims)
    assert subject is None or (subject.startswith("oidc:") and subject.isprintable())


KNOWN = st.builds(KnownKeys, st.floats(0, 1e6), st.floats(0, 1e6), st.frozensets(st.sampled_from("ab")))


@given(KNOWN, st.sampled_from("ab"), st.floats(0, 1e6))
def test_strangers_cause_few_fetches_and_old_keys_do_not_count(
    known: KnownKeys, key: str, now: float
) -> None:
    if must_fetch(known, key, now):
        assert now - known.tried_at >= TRY_EVERY_S
        assert key not in known.ids or now - known.fetched_at >= FRESH_S
    elif key not in known.ids:
        assert now - known.tried_at < TRY_EVERY_S
    assert usable(known, now) == (now - known.fetched_at < STALE_S)
    assert must_fetch(KnownKeys(), key, now)
    assert not usable(KnownKeys(), now)


@pytest.mark.parametrize(
    ("key", "since_fetch", "since_try", "fetched"),
    [
        ("k1", FRESH_S - 1.0, FRESH_S - 1.0, False),
        ("k1", FRESH_S, FRESH_S, True),
        ("k1", FRESH_S, TRY_EVERY_S - 1.0, False),
        ("k2", TRY_EVERY_S, TRY_EVERY_S, True),
        ("k2", 1.0, 1.0, False),
    ],
)
def test_keys_are_fetched_once_an_hour_and_when_a_new_one_is_named(
    key: str, since_fetch: float, since_try: float, fetched: bool
) -> None:
    known = KnownKeys(10_000.0 - since_fetch, 10_000.0 - since_try, frozenset({"k1"}))
    assert must_fetch(known, key, 10_000.0) is fetched


@pytest.mark.parametrize(
    ("url", "secured"),
    [
        ("https://login.example.com", True),
        ("http://127.0.0.1:8080/realm", True),
        ("http://login.example.com", False),
        ("file:///etc/passwd", False),
        ("ftp://127.0.0.1/keys", False),
    ],
)
def test_keys_come_over_tls_or_from_this_host(url: str, secured: bool) -> None:
    assert is_secured(url) is secured


def test_a_key_is_not_taken_for_a_token() -> None:
    assert is_token("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.")
    assert not is_token("sk_0a1b2c3d4e5f_0123.45.67")
    assert not is_token("eyJ")
