"""Whom the local server answers, and with which status: no page of another site, and no wrong body."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stoker.cli.dev.local_server.callers import LOOPBACK, Callers
from stoker.cli.dev.local_server.openapi import document
from stoker.cli.dev.local_server.requests import arguments
from stoker.cli.dev.local_server.routing import local_routes
from stoker.cli.dev.local_server.server import BODY_BYTES_MAX, LocalServer
from stoker.cli.dev.project import Project, load
from stoker.client.apps.requests import function_request
from tests.cli.dev.written_apps import BALANCED, ONE, app

HERE = Callers()
NETWORK = Callers(LOOPBACK | {"box.example"}, network=True)


@pytest.mark.parametrize(
    ("callers", "headers", "status"),
    [
        (HERE, {"Host": "localhost:8888"}, 200),
        (HERE, {"Host": "[::1]:8888"}, 200),
        (HERE, {"Host": "["}, 403),
        (HERE, {"Host": "rebound.example:8888", "Origin": "http://rebound.example:8888"}, 403),
        (HERE, {"Host": "localhost:8888", "Origin": "http://localhost:8888"}, 200),
        (HERE, {"Host": "LOCALHOST:8888", "Origin": "http://localhost:8888"}, 200),
        (HERE, {"Host": "localhost", "Origin": "http://localhost:80"}, 200),
        (HERE, {"Host": "localhost:8888", "Sec-Fetch-Site": "none"}, 200),
        (HERE, {"Host": "localhost:8888", "Origin": "http://localhost:3000"}, 403),
        (HERE, {"Host": "localhost:8888", "Origin": "http://localhost"}, 403),
        (HERE, {"Host": "localhost:8888", "Origin": "http://127.0.0.1:8888"}, 403),
        (HERE, {"Host": "localhost:8888", "Origin": "http://localhost:x"}, 403),
        (HERE, {"Host": "localhost:8888", "Sec-Fetch-Site": "same-site"}, 403),
        (HERE, {"Host": "localhost:8888", "Sec-Fetch-Site": "other"}, 403),
        (HERE, {"Host": "10.0.0.7:8888"}, 403),
        (HERE, {"Host": "rebound.example:8888", "Sec-Fetch-Site": "same-origin"}, 403),
        (HERE, {"Host": "localhost:8888", "Origin": "http://page.example"}, 403),
        (HERE, {"Host": "localhost:8888", "Origin": "null"}, 403),
        (HERE, {"Host": "localhost:8888", "Sec-Fetch-Site": "cross-site"}, 403),
        (
            HERE,  # behind a proxy that names this machine
            {"Host": "localhost:8888", "Sec-Fetch-Site": "same-origin", "Origin": "https://tunnel.example"},
            200,
        ),
        (NETWORK, {"Host": "10.0.0.7:8888"}, 200),
        (NETWORK, {"Host": "10.0.0.7:8888", "Origin": "http://10.0.0.7:8888"}, 200),
        (NETWORK, {"Host": "10.0.0.7:8888", "Origin": "http://page.example"}, 403),
        (NETWORK, {"Host": "10.0.0.7:8888", "Origin": "http://10.0.0.7:3000"}, 403),
        (NETWORK, {"Host": "[fd00::1]:8888", "Origin": "http://[fd00::1]:8888"}, 200),
        (NETWORK, {"Host": "dev:8888"}, 200),
        (NETWORK, {"Host": "dev.local:8888"}, 200),
        (NETWORK, {"Host": "box.example:8888"}, 200),
        (NETWORK, {"Host": "rebound.example:8888"}, 403),
        (NETWORK, {"Host": "rebound.example:8888", "Origin": "http://rebound.example:8888"}, 403),
    ],
)
async def test_pages_of_other_sites_get_no_answer(
    tmp_path: Path, callers: Callers, headers: dict[str, str], status: int
) -> None:
    calls: Any = None
    server = LocalServer(calls, {}, callers)
    server.serve(Project(tmp_path), ())
    transport = httpx2.ASGITransport(server)
    async with httpx2.AsyncClient(transport=transport, base_url="http://local") as http:
        assert (await http.get("/ping", headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b'{"text": "a"}', 400, "input is required and missing"),
        (b"", 400, "the body is not JSON"),
        (b'{"input": "a"}', 400, "input must be an object"),
        (b'{"input": {}}', 400, "input.text is required and missing"),
        (b'{"input": {"text": "a", "volume": 11}}', 400, "input.volume is unknown"),
        (b"[" * 100_000, 400, "more than 200 levels"),
        (b'{"input":{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", 400, "more than 200 levels"),
        (b'{"input":{"text":' + b"[" * 500 + b"]" * 500 + b"}}", 400, "more than 200 levels"),
        (b'{"input":{"text":' + b'{"a":' * 201 + b"1" + b"}" * 201 + b"}}", 400, "more than 200 levels"),
        (
            rb'{"input":{"text":["a","\ud800"]}}',
            400,
            r"input.text[1] has the half of a surrogate pair, '\ud800'",
        ),
        (rb'{"input":{"text":{"\udfff":1}}}', 400, "a key of input.text has the half of a surrogate pair"),
        (rb'{"input":{"\udfff":1}}', 400, "a key of input has the half of a surrogate pair"),
        (b" " * (BODY_BYTES_MAX + 1), 413, "the body is larger than 30 MiB"),
    ],
)
async def test_a_wrong_body_has_the_status_that_a_deployed_endpoint_gives(
    tmp_path: Path, body: bytes, status: int, why: str
) -> None:
    calls: Any = None
    project = load(app(tmp_path, one=ONE, lb=BALANCED))
    routes, _ = local_routes(project)
    server = LocalServer(calls, {}, NETWORK)
    server.serve(project, routes)
    transport = httpx2.ASGITransport(server)
    async with httpx2.AsyncClient(transport=transport, base_url="http://local") as http:
        answer = await http.post("/one/runsync", content=body)
    assert answer.status_code == status
    assert why in answer.json()["error"]
    described = document(routes)["paths"]
    assert "400" in described["/one/runsync"]["post"]["responses"]
    assert "422" in described["/lb/items"]["post"]["responses"], "a route answers as its worker does"


@pytest.mark.parametrize(
    ("file", "function", "status", "why"),
    [
        ("one.py", "caption", 400, "input.text is required and missing"),
        ("one.py", "item", 404, "no function item of "),
        ("lb.py", "item", 404, "no function item of "),
        ("wrong.py", "any", 404, "wrong.py, line 2: syntax error"),
        ("/elsewhere.py", "caption", 404, "no function caption of /elsewhere.py is served from "),
    ],
)
async def test_a_function_is_called_by_its_file_and_name(
    tmp_path: Path, file: str, function: str, status: int, why: str
) -> None:
    calls: Any = None
    wrong = "from stoker.client import endpoint\nreturn return\n"
    project = load(app(tmp_path, one=ONE, lb=BALANCED, wrong=wrong))
    server = LocalServer(calls, {}, NETWORK)
    server.serve(project, local_routes(project)[0])
    transport = httpx2.ASGITransport(server)
    async with httpx2.AsyncClient(transport=transport, base_url="http://local") as http:
        asked = {"file": str(tmp_path / file), "function": function}
        answer = await http.post("/-/call", params=asked, json={"input": {}})
    assert answer.status_code == status
    assert why in answer.json()["error"]


async def test_values_of_200_levels_reach_the_platform(tmp_path: Path) -> None:
    deepest: Any = "\U0001f600"
    for n in range(199):
        deepest = [deepest] if n % 2 else {"a": deepest}
    project = load(app(tmp_path, one=ONE))
    (route,), _ = local_routes(project)
    kwargs = arguments(json.dumps({"input": {"text": deepest}}).encode(), route.function)
    assert kwargs == {"text": deepest}
    served = route.served
    sent = function_request(served.endpoint, route.function.qualname, kwargs, served.code, served.definition)
    assert json.loads(json.dumps(sent)) == sent
