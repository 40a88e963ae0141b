"""What a worker may tell a browser of the origin that all endpoints share in the path form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.http.gateway.shared_origin import RULES, confined, rules_others

PREFIX = "/v2/app"


def cookie(value: bytes, prefix: str = PREFIX) -> bytes | None:
    kept = confined([(b"set-cookie", value)], prefix)
    return kept[0][1] if kept else None


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_for_the_origin_is_for_an_origin_of_its_own(name: bytes) -> None:
    sent = [(name, b"x"), (b"content-security-policy", b"default-src 'none'")]
    assert confined(sent, PREFIX) == sent[1:]
    assert confined(sent, "") == sent


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b"a=1", b"a=1; Path=/v2/app"),
        (b"a=1; Path=/", b"a=1; Path=/v2/app"),
        (b"a=1; path = /chat ; HttpOnly", b"a=1; HttpOnly; Path=/v2/app/chat"),
        (b"a=1;Path=/v2/app/chat", b"a=1; Path=/v2/app/chat"),
        (b"a=1; Path=/v2/app", b"a=1; Path=/v2/app"),
        (b"a=1; Path=/v2/application", b"a=1; Path=/v2/app/v2/application"),
        (b"a=1; Path=/v2/app; Path=/", b"a=1; Path=/v2/app"),
        (b"a=1; Path=relative", b"a=1; Path=/v2/app"),
        (b"a=1; Domain=example.org; Secure", b"a=1; Secure; Path=/v2/app"),
        (b"__Host-a=1; Secure; Path=/", None),
        (b"__secure-a=1; Secure", b"__secure-a=1; Secure; Path=/v2/app"),
    ],
)
def test_a_cookie_is_below_the_prefix(sent: bytes, kept: bytes | None) -> None:
    assert cookie(sent) == kept


def test_by_name_a_cookie_is_as_it_came_but_for_this_name_alone() -> None:
    assert cookie(b"__Host-a=1; Secure; Path=/", "") == b"__Host-a=1; Secure; Path=/"
    assert cookie(b"a=1; Domain=lb.example.org; Path=/x", "") == b"a=1; Path=/x"


@given(
    st.lists(
        st.sampled_from(
            [b"a=1", b" Path=/", b"PATH=/v2/b", b" path", b" Domain=x", b" domain =.y", b"", b" = "]
        )
    )
)
def test_however_a_cookie_is_written_a_browser_keeps_it_to_the_endpoint(parts: list[bytes]) -> None:
    """As RFC 6265 has browsers read it: the last Path counts, and names are in any case."""
    kept = cookie(b";".join(parts))
    assert kept is not None
    fields = [one.partition(b"=") for one in kept.split(b";")[1:]]
    named = [(name.strip().lower(), text.strip()) for name, _, text in fields]
    assert "domain" not in [name.decode() for name, _ in named]
    assert [text for name, text in named if name == b"path"][-1].startswith(PREFIX.encode())


def test_a_service_worker_at_the_prefix_itself_would_rule_its_siblings() -> None:
    script = [(b"service-worker", b"script")]
    assert rules_others(b"/v2/app", PREFIX, script)
    assert not rules_others(b"/v2/app/", PREFIX, script)
    assert not rules_others(b"/v2/app", PREFIX, [])
    assert not rules_others(b"/", "", script)
