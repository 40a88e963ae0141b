"""The application over a plane in memory, called without a network."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp

# Tests have no packages here: the plane in memory is found beside this file.
sys.path.insert(0, str(Path(__file__).parent))

from fake_plane import KEY, FakePlane

from stoker.control.api.app import make_app
from stoker.control.api.settings import ApiSettings


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def app(plane: FakePlane) -> ASGIApp:
    return make_app(plane, ApiSettings())


@pytest.fixture
async def http(app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://stoker", headers=headers) as client:
        yield client
