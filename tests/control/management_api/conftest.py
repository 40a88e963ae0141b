"""`api`: a plane in memory behind the whole API (managed.py). Its own work does not run: `api.run()`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from managed import Managed, managed


@pytest.fixture
async def api() -> AsyncIterator[Managed]:
    async with managed() as made:
        yield made
