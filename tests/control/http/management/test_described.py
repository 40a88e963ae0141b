"""The management API does what its OpenAPI document says: every operation, asked rightly and wrongly.

The operations are read from the document, so a kind of resource that is added is examined, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
)

from tests.control.http.calls.document.described import CHECKS, Described
from tests.control.http.management.managed import Managed, managed
from tests.simulation.virtual_loop import VirtualLoop

V1 = "http://stoker/v1"
IMAGE = "ghcr.io/example/worker:1.2"


def _operations() -> tuple[list[str], list[str]]:
    """All, and those that can be asked wrongly."""
    loop = VirtualLoop(1, limit=10**9)
    context = managed()
    api = loop.run_until_complete(context.__aenter__())
    document = loop.run_until_complete(api.http.get("/openapi.json")).json()
    loop.run_until_complete(context.__aexit__(None, None, None))
    loop.bury()
    loop.close()
    found = {
        f"{method.upper()} {path}": one
        for path, methods in document["paths"].items()
        for method, one in methods.items()
    }
    return list(found), [name for name, one in found.items() if _can_be_wrong(one)]


def _can_be_wrong(operation: dict[str, Any]) -> bool:
    """Any text can be the id of something."""
    plain = {"type", "title", "description"}
    bound = [
        one for one in operation.get("parameters", ()) if one["schema"].keys() - plain or one["in"] == "query"
    ]
    return bool(bound) or "requestBody" in operation


OPERATIONS, WITH_QUESTIONS = _operations()


class Known:
    """One of each kind of resource, made again whenever it has gone."""

    def __init__(self, api: Managed, loop: VirtualLoop) -> None:
        self._api, self._loop = api, loop
        self._made = 0

    def __call__(self, n: int, operation: str) -> dict[str, str]:
        """Known ids three times in four."""
        if n % 4 == 3 or "{" not in operation:
            return {}
        parameter = operation.partition("{")[2].partition("}")[0]
        make = {
            "templateId": self._template,
            "endpointId": self._endpoint,
            "networkVolumeId": lambda: self._new("/networkvolumes", size=1, dataCenterId="EU-RO-1"),
            "containerRegistryAuthId": lambda: self._new(
                "/containerregistryauth", username="u", password="p"
            ),
            "keyId": lambda: self._new("/keys"),
        }.get(parameter)
        return {} if make is None else {parameter: make()}

    def _template(self) -> str:
        return self._new("/templates", imageName=IMAGE)

    def _endpoint(self) -> str:
        return self._new("/endpoints", templateId=self._template())

    def _new(self, path: str, **fields: Any) -> str:
        self._made += 1
        made = self._loop.run_until_complete(self._api.made(path, name=f"one {self._made}", **fields))
        return str(made["id"])


def checks(case: Any, response: httpx2.Response) -> list[Any]:
    """What fits the document may be refused all the same, for what it names or for what there is already."""
    if "/../" in f"{response.request.url.path}/" or not response.request.url.path.startswith("/v1/"):
        return [not_a_server_error]  # an id like ".." leads elsewhere
    if response.status_code == 413:
        return [one for one in CHECKS if one is not negative_data_rejection]
    if response.status_code in (400, 404):
        return [one for one in CHECKS if one is not positive_data_acceptance]
    return CHECKS


@pytest.fixture(scope="module")
def api() -> Iterator[tuple[Described, Known]]:
    loop = VirtualLoop(1, limit=10**9)
    context = managed()
    made = loop.run_until_complete(context.__aenter__())
    document = loop.run_until_complete(made.http.get("/openapi.json")).json()
    described = Described(document, made.app, made.world.key, loop.run_until_complete, base=V1, checks=checks)
    yield described, Known(made, loop)
    loop.run_until_complete(context.__aexit__(None, None, None))
    loop.bury()
    loop.close()


def examine(api: tuple[Described, Known], operation: str, *, examples: int, valid: bool) -> None:
    described, known = api
    described.examine(operation, where=lambda n: known(n, operation), examples=examples, valid=valid)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_requested_as_described_is_answered_as_described(
    api: tuple[Described, Known], operation: str
) -> None:
    examine(api, operation, examples=3, valid=True)


@pytest.mark.parametrize("operation", WITH_QUESTIONS)
def test_what_is_requested_otherwise_is_refused_as_described(
    api: tuple[Described, Known], operation: str
) -> None:
    examine(api, operation, examples=3, valid=False)


@pytest.mark.slow
@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("operation", WITH_QUESTIONS)
def test_the_same_at_length(api: tuple[Described, Known], operation: str, valid: bool) -> None:
    examine(api, operation, examples=25, valid=valid)
