"""Which endpoint an address names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.http.gateway.paths import Target, of_host, of_path


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        (b"/v2/app", Target("app", b"/", "/v2/app")),
        (b"/v2/app/", Target("app", b"/", "/v2/app")),
        (b"/v2/app/a%2Fb/c", Target("app", b"/a%2Fb/c", "/v2/app")),
        (b"/v2/app/run", Target("app", b"/run", "/v2/app")),
        (b"/v2/app/status/j-1", Target("app", b"/status/j-1", "/v2/app")),
        (b"/v2/app//run", Target("app", b"//run", "/v2/app")),
        (b"/v2/app/running", Target("app", b"/running", "/v2/app")),
        (b"/v2/", None),
        (b"/v2", None),
        (b"/v1/app/x", None),
        (b"*", None),
    ],
)
def test_the_path_form(raw: bytes, target: Target | None) -> None:
    assert of_path(raw) == target


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [
        ("app.lb.example.org", "app"),
        ("APP.lb.Example.org:8443", "app"),
        ("app.lb.example.org.", "app"),
        ("lb.example.org", None),
        ("a.app.lb.example.org", None),
        (".lb.example.org", None),
        ("app.lb.example.com", None),
        ("app.xlb.example.org", None),
        ("", None),
        ("[::1]:8000", None),
    ],
)
def test_the_host_form_passes_every_path(host: str, endpoint: str | None) -> None:
    found = of_host(host, "lb.example.org", b"/run")
    assert found == (None if endpoint is None else Target(endpoint, b"/run"))


@given(
    st.from_regex(rb"[a-z0-9-]{1,20}", fullmatch=True),
    st.binary(max_size=30).map(lambda b: b.replace(b"?", b"")),
)
def test_a_worker_sees_the_rest_of_the_path_as_it_was_sent(endpoint: bytes, rest: bytes) -> None:
    found = of_path(b"/v2/" + endpoint + b"/" + rest)
    assert found is not None
    assert (found.endpoint.encode(), found.path) == (endpoint, b"/" + rest)
