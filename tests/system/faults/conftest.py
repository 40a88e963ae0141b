"""The database of a story: control's own file, or PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Any:
    if request.param is None:
        yield None
        return
    server = request.getfixturevalue("postgres")
    made = server.fresh()
    yield made
    server.drop(made)
