"""Pages of configured origins may call from a browser, and no others."""

from __future__ import annotations

import httpx
import pytest
from fake_plane import KEY, FakePlane
from starlette.types import ASGIApp

from stoker.control.api.app import make_app
from stoker.control.api.router import OperationRouter
from stoker.control.api.settings import ApiSettings

PAGE = "https://pictures.example.com"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


def client(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://stoker")


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
    assert isinstance(app, OperationRouter)
    async with client(app) as http:
        answer = await http.get("/v2/echo/health", headers={"Origin": PAGE, "Authorization": KEY})
    assert not [name for name in answer.headers if name.startswith("access-control")]
