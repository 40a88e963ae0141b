"""The application over a plane in memory, called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.types import ASGIApp

from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.settings import ApiSettings

# Tests have no packages here: the plane in memory is found beside this file.
from tests.control.http.calls.fake_plane import KEY, FakePlane


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def app(plane: FakePlane) -> ASGIApp:
    return make_app(plane, ApiSettings())


@pytest.fixture
async def http(app: ASGIApp) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app, raise_app_exceptions=True)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://stoker", headers=headers) as client:
        yield client
