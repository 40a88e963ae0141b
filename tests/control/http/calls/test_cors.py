"""Pages of configured origins may call from a browser, and no others."""

from __future__ import annotations

import httpx2
import pytest
from starlette.types import ASGIApp

from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.front import Front
from stoker.control.http.calls.settings import ApiSettings
from tests.control.http.calls.fake_plane import KEY, FakePlane

PAGE = "https://pictures.example.com"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


def client(app: ASGIApp) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://stoker")


@pytest.fixture
def app(plane: FakePlane) -> ASGIApp:
    return make_app(plane, ApiSettings(cors_origins=(PAGE,)))


@pytest.mark.parametrize("path", ["/v2/echo/run", "/v1/pods"])
async def test_what_a_browser_asks_first_needs_no_key(app: ASGIApp, path: str) -> None:
    async with client(app) as http:
        answer = await http.options(path, headers={"Origin": PAGE, **PREFLIGHT})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers


ASKED = ("x-stainless-lang, x-stainless-retry-count", "traceparent", "range", "x-my-worker, idempotency-key")


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("path", ["/v2/echo/run", "/v2/app/its/own/path", "/v1/pods"])
async def test_a_page_may_send_the_headers_that_it_asks_for(app: ASGIApp, path: str, asked: str) -> None:
    first = {**PREFLIGHT, "Access-Control-Request-Headers": asked}
    async with client(app) as http:
        allowed = await http.options(path, headers={"Origin": PAGE, **first})
        refused = await http.options(path, headers={"Origin": "https://evil.example", **first})
    assert allowed.headers["access-control-allow-headers"] == asked
    assert (allowed.status_code, refused.status_code) == (200, 400)
    assert "access-control-allow-origin" not in refused.headers


async def test_a_page_may_read_the_headers_that_clients_need(app: ASGIApp) -> None:
    async with client(app) as http:
        answer = await http.get("/v2/echo/health", headers={"Origin": PAGE, "Authorization": KEY})
    exposed = {one.strip().lower() for one in answer.headers["access-control-expose-headers"].split(",")}
    needed = {
        "*",
        "retry-after",
        "ratelimit",
        "x-runpod-worker-id",
        "content-range",
        "x-should-retry",
        "location",
    }
    assert needed <= exposed
    assert "access-control-allow-credentials" not in answer.headers  # with it, `*` would be a header's name


@pytest.mark.parametrize(("key", "status"), [(KEY, 200), ("sk-wrong", 401)])
async def test_answers_and_refusals_can_be_read_by_the_page(app: ASGIApp, key: str, status: int) -> None:
    async with client(app) as http:
        answer = await http.get("/v2/echo/health", headers={"Origin": PAGE, "Authorization": key})
    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == PAGE


async def test_other_pages_may_not(app: ASGIApp) -> None:
    async with client(app) as http:
        response = await http.options("/v2/echo/run", headers={"Origin": "https://evil.example", **PREFLIGHT})
        answer = await http.get(
            "/v2/echo/health", headers={"Origin": "https://evil.example", "Authorization": KEY}
        )
    assert response.status_code == 400
    assert "access-control-allow-origin" not in response.headers
    assert "access-control-allow-origin" not in answer.headers


async def test_without_configuration_there_is_nothing_in_front_of_the_router(plane: FakePlane) -> None:
    app = make_app(plane, ApiSettings())
    assert isinstance(app, Front)
    async with client(app) as http:
        answer = await http.get("/v2/echo/health", headers={"Origin": PAGE, "Authorization": KEY})
    assert not [name for name in answer.headers if name.startswith("access-control")]
