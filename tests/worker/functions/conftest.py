from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from stoker.worker.functions.handler import Functions
from stoker.worker.sdk import Device
from tests.worker.functions.function_apps import joined_watchers


@pytest.fixture
async def functions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[Functions]]]:
    """Makes the handler with these variables, as a worker would; its processes end with the test."""
    made: list[Functions] = []

    async def make(**variables: str) -> Functions:
        for name, value in {
            "HOME": str(tmp_path),
            "STOKER_ENVIRONMENTS": str(tmp_path / "e"),
            **variables,
        }.items():
            monkeypatch.setenv(name, value)
        handler = Functions()
        made.append(handler)
        await handler.setup(Device())
        return handler

    with joined_watchers():
        yield make
        for handler in made:
            await handler.close()


@pytest.fixture
async def live(functions: Callable[..., Awaitable[Functions]]) -> Functions:
    return await functions(STOKER_FUNCTIONS_LIVE="1")
