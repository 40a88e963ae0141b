"""What of a message's headers reaches the other side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.http.gateway.headers import HOP_BY_HOP, CallerFacts, framing, to_caller, to_worker

CALLER = CallerFacts("192.0.2.7", "https", "/v2/app")
OWN = [
    (b"x-forwarded-for", b"192.0.2.7"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"api.example.org"),
    (b"x-forwarded-prefix", b"/v2/app"),
]
HOST = (b"host", b"api.example.org")
NAMES = [*HOP_BY_HOP, b"authorization", b"cookie", b"x-own", b"content-type", b"content-length", b"host"]
HEADERS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from([b"a", b"x-own, close", b"Cookie", b"7"]))
)


def test_the_key_stays_here_and_the_caller_is_named() -> None:
    sent = [
        HOST,
        (b"authorization", b"Bearer sk_1"),
        (b"cookie", b"a=1"),
        (b"cookie", b"b=2"),
        (b"expect", b"100-continue"),
    ]
    assert to_worker(sent, CALLER) == [HOST, (b"cookie", b"a=1"), (b"cookie", b"b=2"), *OWN]


def test_what_a_caller_says_of_itself_is_not_believed() -> None:
    lies = [(name, b"10.0.0.1") for name in (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host")]
    lies += [(b"forwarded", b"for=10.0.0.1"), (b"x-forwarded-prefix", b"/x"), (b"x-runpod-worker-id", b"w1")]
    assert to_worker([*lies, HOST], CALLER) == [HOST, *OWN]


SPOOFED = (
    "X-Real-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Fastly-Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Envoy-External-Address",
    "X-Forwarded",
    "X-Forwarded-Port",
    "X-Forwarded-User",
    "X-Original-Forwarded-For",
    "X-Original-URL",
    "Forwarded",
    *("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix", "Client-IP"),
)


@pytest.mark.parametrize("name", SPOOFED)
@pytest.mark.parametrize("between", ["-", "_", "."], ids=["as it is", "underscores", "dots"])
def test_nobody_speaks_for_another_address_however_it_is_written(name: str, between: str) -> None:
    """WSGI and CGI make the same variable of X-Real-IP and of X_Real_IP."""
    lie = (name.lower().replace("-", between).encode(), b"10.0.0.1")
    assert to_worker([lie, HOST], CALLER) == [HOST, *OWN]


@pytest.mark.parametrize(
    "name", [b"content_length", b"transfer_encoding", b"authoriz_ation", b"x_runpod_worker_id"]
)
def test_a_name_with_underscores_is_not_another_name(name: bytes) -> None:
    kept = name == b"authoriz_ation"
    assert to_worker([(name, b"5"), (b"x_own", b"1"), HOST], CALLER) == [
        *([(name, b"5")] if kept else []),
        (b"x_own", b"1"),
        HOST,
        *OWN,
    ]


@pytest.mark.parametrize("status", [204, 304])
def test_a_length_without_a_body_is_dropped(status: int) -> None:
    sent = [(b"content-length", b"10"), (b"etag", b"x")]
    assert to_caller(sent, "w1", status) == [(b"etag", b"x"), (b"x-runpod-worker-id", b"w1")]
    assert to_caller(sent, "w1")[0] == sent[0]


def test_what_connection_names_is_for_the_next_hop() -> None:
    sent = [
        (b"connection", b"close, X-Own"),
        (b"x-own", b"1"),
        (b"keep-alive", b"timeout=5"),
        (b"x-other", b"2"),
    ]
    assert to_caller(sent, "w1") == [(b"x-other", b"2"), (b"x-runpod-worker-id", b"w1")]


def test_connection_cannot_take_away_what_a_message_needs() -> None:
    sent = [(b"connection", b"host, content-length"), HOST, (b"content-length", b"3")]
    assert to_worker(sent, CALLER)[:2] == sent[1:]


def test_a_worker_cannot_pass_for_another() -> None:
    assert to_caller([(b"x-runpod-worker-id", b"w2"), (b"date", b"then")], "w1") == [
        (b"x-runpod-worker-id", b"w1")
    ]


@pytest.mark.parametrize(
    ("headers", "added"),
    [
        ([], []),
        ([(b"content-length", b"5")], []),
        ([(b"transfer-encoding", b"chunked")], [(b"transfer-encoding", b"chunked")]),
        ([(b"transfer-encoding", b"gzip, chunked")], [(b"transfer-encoding", b"chunked")]),
    ],
)
def test_how_a_body_is_framed(headers: list[tuple[bytes, bytes]], added: list[tuple[bytes, bytes]]) -> None:
    assert framing(headers) == added


@given(HEADERS)
def test_any_request(headers: list[tuple[bytes, bytes]]) -> None:
    passed = to_worker(headers, CALLER)
    kept = [header for header in passed if not header[0].startswith(b"x-forwarded")]
    assert not {name for name, _ in kept} & (HOP_BY_HOP | {b"authorization"})
    order = iter(headers)
    assert all(header in order for header in kept)
    for name in (b"host", b"content-length"):
        assert [one for one in kept if one[0] == name] == [one for one in headers if one[0] == name]
    named = b",".join(value for name, value in headers if name == b"connection").lower()
    assert ((b"x-own" in named) and not any(name == b"x-own" for name, _ in kept)) or (
        [one for one in kept if one[0] == b"x-own"] == [one for one in headers if one[0] == b"x-own"]
    )
