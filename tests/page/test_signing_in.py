"""The cookie of a session: for the page's own requests, no script reads it, and over TLS it stays there."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

import httpx2
import pytest
from fastapi import FastAPI

from stoker.page.access.sessions import Sessions
from stoker.page.access.signing_in import SigningIn


async def cookie_of(link: str, sessions: Sessions, *, secure: bool) -> str:
    app = FastAPI()
    connections = Mock(url="http://control", drop_ended=AsyncMock())
    connections.of.return_value = Mock(learn=AsyncMock())
    SigningIn(sessions, connections, secure=secure, clock=lambda: 1.0).add_to(app)
    transport: Any = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        answer = await http.get("/sign-in", params={"token": link})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
    return str(answer.headers["set-cookie"])


@pytest.mark.parametrize("secure", [True, False])
async def test_a_cookie_is_secure_where_the_page_is_served_over_tls(secure: bool) -> None:
    sessions = Sessions()
    sessions.offer_link("sk_the_key", "link", 1.0)
    cookie = await cookie_of("link", sessions, secure=secure)
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert ("Secure" in cookie) == secure
    assert "sk_the_key" not in cookie
