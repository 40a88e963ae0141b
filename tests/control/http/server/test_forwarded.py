"""Who calls, as the proxies in front report it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.http.server.forwarded import Proxies

PEER = "10.0.0.2"
CHAIN = Proxies.parse(["10.0.0.0/8", "2001:db8::1"])


def caller(proxies: Proxies, *values: str) -> str:
    return proxies.caller([(b"x-forwarded-for", value.encode()) for value in values], PEER)


@pytest.mark.parametrize(
    ("values", "one_proxy", "chain"),
    [
        ((), PEER, PEER),
        (("198.51.100.7",), "198.51.100.7", "198.51.100.7"),
        (("203.0.113.9, 198.51.100.7",), "198.51.100.7", "198.51.100.7"),
        (("198.51.100.7, 10.0.0.5",), "10.0.0.5", "198.51.100.7"),
        (("203.0.113.9", "198.51.100.7", "10.0.0.5"), "10.0.0.5", "198.51.100.7"),
        (("10.0.0.9, 10.0.0.5",), "10.0.0.5", "10.0.0.9"),
        (("198.51.100.7:4711, [2001:db8::1]:80",), "2001:db8::1", "198.51.100.7"),
        (("::ffff:198.51.100.7, ::ffff:10.0.0.5",), "10.0.0.5", "198.51.100.7"),
        (("198.51.100.7, unknown",), PEER, PEER),
        (("198.51.100.7, unknown, 10.0.0.5",), "10.0.0.5", "10.0.0.5"),
    ],
)
def test_the_caller_is_the_last_that_is_no_trusted_proxy(
    values: tuple[str, ...], one_proxy: str, chain: str
) -> None:
    assert caller(Proxies(), *values) == one_proxy
    assert caller(CHAIN, *values) == chain


@given(st.lists(st.text(st.characters(max_codepoint=255), max_size=20), max_size=4))
def test_nothing_that_a_caller_writes_changes_who_it_is(claims: list[str]) -> None:
    assert caller(CHAIN, *[*claims, "198.51.100.7, 10.0.0.5"]) == "198.51.100.7"


@pytest.mark.parametrize(
    ("value", "scheme"),
    [(b"https", "https"), (b"http, https", "https"), (b"WSS", "https"), (b"ws", "http"), (b"gopher", "http")],
)
def test_the_scheme_is_one_that_exists(value: bytes, scheme: str) -> None:
    assert Proxies().scheme([(b"x-forwarded-proto", value)], "http") == scheme
    assert Proxies().scheme([], "https") == "https"
