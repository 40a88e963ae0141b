"""Which addresses the guard goes to. Examples name the hazard; properties hold it over all of them."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.outbound.refused_addresses import (
    forbidden,
    is_loopback,
    malformed,
    redacted_url,
    refusal,
    refusal_before_lookup,
)

PUBLIC = ["93.184.216.34", "1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"]
PRIVATE = ["127.0.0.1", "127.8.9.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
           "100.127.255.254", "::1", "fd12:3456::1"]  # fmt: skip
NEVER = ["0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.1.1", "192.0.0.192", "192.0.2.1", "198.18.0.1",
         "198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "::",
         "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2001:db8::1", "2001::1", "3fff::1", "100::1",
         "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "5f00::1", "not an address", ""]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert forbidden(address, False) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_need_the_switch(address: str) -> None:
    assert forbidden(address, False)
    assert forbidden(address, True) is None


@pytest.mark.parametrize("address", NEVER)
def test_some_addresses_are_never_allowed(address: str) -> None:
    """The switch is for the operator's own network, not for metadata services, broadcast or nonsense."""
    assert forbidden(address, False)
    assert forbidden(address, True)


@pytest.mark.parametrize("wrapped", ["::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::7f00:1",
                                     "2002:7f00:1::", "2002:a9fe:a9fe::1", "::ffff:10.0.0.1"])  # fmt: skip
def test_an_ipv4_address_does_not_hide_in_ipv6(wrapped: str) -> None:
    assert forbidden(wrapped, False)


def test_a_wrapped_public_address_is_allowed() -> None:
    assert forbidden("::ffff:1.1.1.1", False) is None
    assert forbidden("64:ff9b::101:101", False) is None


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_wrapping_changes_nothing(number: int, allow_private: bool) -> None:
    plain = forbidden(str(IPv4Address(number)), allow_private)
    assert forbidden(str(IPv6Address(0xFFFF << 32 | number)), allow_private) == plain
    assert forbidden(str(IPv6Address((0x2002 << 112) | number << 80)), allow_private) == plain
    assert forbidden(str(IPv6Address((0x0064FF9B << 96) | number)), allow_private) == plain


@given(st.integers(0, 2**32 - 1))
def test_nothing_that_python_calls_not_global_is_allowed(number: int) -> None:
    """An independent oracle: our tables are at least as strict as the standard library's."""
    address = IPv4Address(number)
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert forbidden(str(address), False)


@given(st.integers(0, 2**128 - 1))
def test_no_ipv6_outside_the_global_range_is_allowed(number: int) -> None:
    address = IPv6Address(number)
    if address in ip_network("64:ff9b::/96") or address.ipv4_mapped or number >> 32 == 0:
        return
    if address not in ip_network("2000::/3"):
        assert forbidden(str(address), False)


@given(st.lists(st.sampled_from(PUBLIC)), st.sampled_from(PRIVATE + NEVER), st.lists(st.sampled_from(PUBLIC)))
def test_one_bad_address_among_good_ones_refuses(before: list[str], bad: str, after: list[str]) -> None:
    assert refusal("http://example.test/", [*before, bad, *after], False)


@given(st.lists(st.sampled_from(PUBLIC), min_size=1))
def test_good_addresses_pass(addresses: list[str]) -> None:
    assert refusal("https://example.test:8443/a?b=c", addresses, False) is None


def test_a_host_without_an_address_is_refused() -> None:
    assert refusal("http://example.test/", [], True)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://example.test/", "gopher://example.test/", "//example.test/", "example.test",
     "", "http://", "http:///x", "http://user@example.test/", "http://user:word@example.test/",
     "http://@example.test/",
     "http://example.test:0/", "http://example.test:99999/", "http://example.test:x/", "http://[::1",
     "http://a b/",
     "http://example.test\\@127.0.0.1/", "http://example.test/\r\nX: y", "http://example.test/\x00", "HTTP",
     " http://example.test/", "javascript:alert(1)", "data:text/plain,x"],
)  # fmt: skip
def test_urls_that_are_not_plain_web_addresses_are_refused(url: str) -> None:
    assert malformed(url)
    assert refusal(url, PUBLIC, True)


@given(st.text())
def test_any_text_gets_an_answer(text: str) -> None:
    why = malformed(text)
    assert why is None or "refused" in why
    redacted_url(text)


@given(st.text(min_size=8, alphabet=st.characters(categories=["L", "N"])))
def test_messages_contain_no_query_and_no_password(secret: str) -> None:
    for url in (
        f"http://me:{secret}@10.0.0.1/a",
        f"http://10.0.0.1/a?token={secret}",
        f"http://10.0.0.1/a#{secret}",
    ):
        assert secret not in (refusal(url, ["10.0.0.1"], False) or "")


# ---- what a URL alone tells


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "LOCALHOST.", "app.localhost", "[::1]", "127.1", "2130706433", "0x7f.1",
     "0177.0.0.01", "10.0.0.8", "[::ffff:10.0.0.1]", "192.168.1"],
)  # fmt: skip
def test_a_private_host_is_reported_before_it_is_resolved(host: str) -> None:
    url = f"http://{host}:9000/hook?x=1"
    assert "is refused: its host is the" in (refusal_before_lookup(url, False) or "")
    assert refusal_before_lookup(url, True) is None


@pytest.mark.parametrize("host", ["169.254.169.254", "0", "[fe80::1]", "0xa9fea9fe"])
def test_a_host_that_is_never_visited_is_reported(host: str) -> None:
    assert refusal_before_lookup(f"http://{host}/", True)


@pytest.mark.parametrize(
    "host",
    [
        "93.184.216.34",
        "caller.example",
        "localhost.example",
        "1.2.3.4.5",
        "0x.1",
        "0b1",
        "127.0.0.256",
        "1_0",
    ],
)
def test_what_a_name_is_stays_to_be_seen(host: str) -> None:
    assert refusal_before_lookup(f"https://{host}/", False) is None


@given(st.from_regex(r"(0x)?[0-9a-f]{1,10}(\.(0x)?[0-9a-f]{1,4}){0,4}", fullmatch=True))
def test_numbers_are_read_as_a_resolver_reads_them(host: str) -> None:
    """The C library's own reading is the oracle."""
    try:
        read = str(IPv4Address(socket.inet_aton(host)))
    except OSError:
        assert refusal_before_lookup(f"http://{host}/", False) is None
    else:
        assert bool(refusal_before_lookup(f"http://{host}/", False)) == bool(forbidden(read, False))


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("::1", True),
        ("127.9.9.9", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.7", False),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("x.localhost", False),
    ],
)
def test_which_hosts_are_this_machine(host: str, here: bool) -> None:
    assert is_loopback(host) is here
