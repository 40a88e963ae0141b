"""What the OpenAPI document describes, asked of the application: Schemathesis draws the requests and judges
the answers, which travel over ASGI, on virtual time, and never over a network."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from typing import Any

import httpx2
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from stoker.control.http.calls.shapes import URL_PATTERN

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    positive_data_acceptance,
    negative_data_rejection,
]
URL_CHARACTERS = 60_000
"""What the client sends at most."""

Ask = Callable[[Coroutine[Any, Any, httpx2.Response]], httpx2.Response]
Checks = Callable[[Any, httpx2.Response], list[Any]]


def checks_of(case: Any, response: httpx2.Response) -> list[Any]:
    """What fits may be refused all the same: by an endpoint's schema, for a job's state, for a key's past."""
    refusable = case.path_parameters.get("endpoint_id") != "echo" or "/retry/" in case.operation.label
    if refusable or response.status_code == 422:
        return [check for check in CHECKS if check is not positive_data_acceptance]
    return CHECKS


class Described:
    """An application and its document. `run` brings a request to its answer on the application's loop."""

    def __init__(
        self,
        document: dict[str, Any],
        app: Any,
        key: str,
        run: Ask,
        *,
        base: str = "http://stoker",
        checks: Checks = checks_of,
    ) -> None:
        """`base` is what the paths stand below; `checks` chooses, from a request and its answer."""
        self._base, self._checks = base, checks
        self._client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app),
            base_url=base,
            headers={"Authorization": f"Bearer {key}"},
        )
        self._run = run
        self.operations = {mode: _operations(document, mode) for mode in GenerationMode}

    def examine(
        self, label: str, *, where: Callable[[int], dict[str, str]], examples: int, valid: bool
    ) -> list[int]:
        """Asks so often, with requests as they are described or with others; gives the answers' statuses.

        `where` may name the path's endpoint and job, and the query's node, from the number of the request.
        """
        mode = GenerationMode.POSITIVE if valid else GenerationMode.NEGATIVE
        statuses: list[int] = []

        @seed(1)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=self.operations[mode][label].as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            known = where(len(statuses))
            for name in known.keys() & case.path_parameters.keys():
                case.path_parameters[name] = known[name]
            for name in known.keys() & (case.query or {}).keys():
                case.query[name] = known[name]
            response = self._send(case)
            statuses.append(response.status_code)
            case.validate_response(response, checks=self._checks(case, response))

        ask()
        return statuses

    def _send(self, case: Any) -> httpx2.Response:
        sent = requests.Request(**_for_requests(case, self._base)).prepare()
        assert sent.url is not None
        assume(len(sent.url) < URL_CHARACTERS)
        body = sent.body.encode() if isinstance(sent.body, str) else sent.body
        request = self._client.request(sent.method or "", sent.url, headers=dict(sent.headers), content=body)
        return self._run(request)

    def close(self) -> None:
        asyncio.new_event_loop().run_until_complete(self._client.aclose())


def _operations(document: dict[str, Any], mode: GenerationMode) -> dict[str, Any]:
    """Every request carries the right key: what the others get is tested elsewhere."""
    copied = copy.deepcopy(document)
    for methods in copied["paths"].values():
        for operation in methods.values():
            del operation["security"]
    if mode is GenerationMode.NEGATIVE:
        _forget_url_pattern(copied)
    schema = schemathesis.openapi.from_dict(copied, config=SchemathesisConfig())
    return {operation.ok().label: operation.ok() for operation in schema.get_all_operations()}


def _forget_url_pattern(node: Any) -> None:
    """It names addresses that are taken for certain; there are others, and they are no mistakes."""
    if isinstance(node, dict):
        if node.get("pattern") == URL_PATTERN:
            del node["pattern"]
        for value in node.values():
            _forget_url_pattern(value)
    elif isinstance(node, list):
        for value in node:
            _forget_url_pattern(value)


def _for_requests(case: Any, base: str) -> dict[str, Any]:
    arguments = case.as_transport_kwargs(base_url=base)
    known = ("method", "url", "headers", "files", "data", "params", "json", "cookies")
    return {name: value for name, value in arguments.items() if name in known}
