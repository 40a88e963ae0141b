from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

# Tests have no packages here: the scripted service is found beside this file.
from tests.client.service import Awaiting, Service, waiting


@pytest.fixture(params=["waits", "awaits"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., tuple[Any, Service]]]:
    """Makes a client, of either kind, of a service that gives these answers."""
    made: list[Any] = []

    def make(
        *answers: httpx2.Response | Exception, takes: float = 0.0, **settings: Any
    ) -> tuple[Any, Service]:
        service = Service(*answers, takes=takes)
        kind: Any = waiting if request.param == "waits" else Awaiting
        made.append(kind("https://stoker", "sk-1", service, **settings))
        return made[-1], service

    yield make
    for client in made:
        client.close()
