"""The guard lets through what comes from the page itself, for those who signed in."""

from __future__ import annotations

from collections.abc import Mapping

import httpx2
import pytest
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import Receive, Scope, Send

from stoker.page.access.guard import COOKIE, Guard, why_refused

NAMES = frozenset({"stoker.example.com"})
HERE = {"host": "127.0.0.1:8080"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost:1", "[::1]:8080", "stoker.example.com", "127.9.9.9"]
)
def test_its_own_names_are_let_through(host: str) -> None:
    assert why_refused({"host": host}, changes=False, allowed=NAMES) == ""
    assert why_refused({"host": host, "origin": f"https://{host}"}, changes=True, allowed=NAMES) == ""


@pytest.mark.parametrize(
    "host", ["evil.example", "stoker.example.com.evil.example", "10.0.0.1", "", "0.0.0.0"]
)
def test_a_foreign_name_is_refused(host: str) -> None:
    assert "--name" in why_refused({"host": host}, changes=False, allowed=NAMES)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1:8080.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_page_changes_nothing(headers: Mapping[str, str]) -> None:
    assert why_refused(HERE | dict(headers), changes=True, allowed=NAMES)
    assert why_refused(HERE | dict(headers), changes=False, allowed=NAMES) == "", "a link may lead here"


async def inside(scope: Scope, receive: Receive, send: Send) -> None:
    answer = PlainTextResponse if scope["path"] == "/text" else HTMLResponse
    await answer("<script>1</script><script src=x></script>")(scope, receive, send)


def caller(token: str = "") -> httpx2.AsyncClient:
    guard = Guard(inside, lambda found: found == "right", frozenset())
    headers = {"Cookie": f"{COOKIE}={token}"} if token else {}
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(guard), base_url="http://127.0.0.1:8080", headers=headers
    )


async def test_without_a_session_one_is_sent_to_sign_in() -> None:
    for token in ("", "wrong"):
        async with caller(token) as http:
            answer = await http.get("/jobs")
            assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
            assert (await http.post("/jobs")).status_code == 403
            assert (await http.get("/sign-in")).status_code == 200
            assert (await http.get("/_nicegui/x.js")).status_code == 200


async def test_each_page_has_a_nonce_of_its_own_and_no_other_script_runs() -> None:
    async with caller("right") as http:
        first, second = await http.get("/"), await http.get("/")
    nonces = []
    for answer in (first, second):
        policy = answer.headers["content-security-policy"]
        nonce = policy.partition("'nonce-")[2].partition("'")[0]
        assert answer.text == f'<script nonce="{nonce}">1</script><script nonce="{nonce}" src=x></script>'
        script_src = policy.partition("script-src ")[2].partition(";")[0]
        assert "unsafe-inline" not in script_src
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        nonces.append(nonce)
    assert nonces[0] != nonces[1]
    async with caller("right") as http:
        assert "nonce=" not in (await http.get("/text")).text


async def test_a_broken_cookie_is_none() -> None:
    async with caller() as http:
        answer = await http.get("/", headers={"Cookie": 'a="\x80; stoker-page'.encode("latin-1")})
        assert answer.status_code == 303
