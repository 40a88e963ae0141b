"""`api`: a plane in memory behind the whole API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.control.http.management.managed import Managed, managed


@pytest.fixture
async def api() -> AsyncIterator[Managed]:
    async with managed() as made:
        yield made
