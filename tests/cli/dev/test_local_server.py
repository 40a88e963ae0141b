"""Whom the local server answers, and with which status: no page of another site, and no wrong body."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from written_apps import BALANCED, ONE, app

from stoker.cli.dev.dev import LOOPBACK
from stoker.cli.dev.local_server.openapi import document
from stoker.cli.dev.local_server.routing import local_routes
from stoker.cli.dev.local_server.server import BODY_BYTES_MAX, LocalServer
from stoker.cli.dev.project import Project, load

ANY = None


@pytest.mark.parametrize(
    ("hosts", "headers", "status"),
    [
        (LOOPBACK, {"Host": "localhost:8888"}, 200),
        (LOOPBACK, {"Host": "[::1]:8888"}, 200),
        (LOOPBACK, {"Host": "["}, 403),
        (LOOPBACK, {"Host": "rebound.example:8888", "Origin": "http://rebound.example:8888"}, 403),
        (LOOPBACK, {"Host": "localhost:8888", "Origin": "http://localhost:3000"}, 200),
        (LOOPBACK, {"Host": "localhost:8888", "Origin": "http://page.example"}, 403),
        (LOOPBACK, {"Host": "localhost:8888", "Origin": "null"}, 403),
        (LOOPBACK, {"Host": "localhost:8888", "Sec-Fetch-Site": "cross-site"}, 403),
        (
            LOOPBACK,  # behind a proxy that names this machine
            {"Host": "localhost:8888", "Sec-Fetch-Site": "same-origin", "Origin": "https://tunnel.example"},
            200,
        ),
        (ANY, {"Host": "10.0.0.7:8888"}, 200),
        (ANY, {"Host": "10.0.0.7:8888", "Origin": "http://10.0.0.7:8888"}, 200),
        (ANY, {"Host": "10.0.0.7:8888", "Origin": "http://page.example"}, 403),
    ],
)
async def test_pages_of_other_sites_get_no_answer(
    tmp_path: Path, hosts: frozenset[str] | None, headers: dict[str, str], status: int
) -> None:
    calls: Any = None
    server = LocalServer(calls, {}, hosts)
    server.serve(Project(tmp_path), ())
    transport = httpx.ASGITransport(server)
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as http:
        assert (await http.get("/ping", headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b'{"text": "a"}', 400, "input is required and missing"),
        (b"", 400, "the body is not JSON"),
        (b'{"input": "a"}', 400, "input must be an object"),
        (b'{"input": {}}', 400, "input.text is required and missing"),
        (b'{"input": {"text": "a", "volume": 11}}', 400, "input.volume is unknown"),
        (b" " * (BODY_BYTES_MAX + 1), 413, "the body is larger than 30 MiB"),
    ],
)
async def test_a_wrong_body_has_the_status_that_a_deployed_endpoint_gives(
    tmp_path: Path, body: bytes, status: int, why: str
) -> None:
    calls: Any = None
    project = load(app(tmp_path, one=ONE, lb=BALANCED))
    routes, _ = local_routes(project)
    server = LocalServer(calls, {}, ANY)
    server.serve(project, routes)
    transport = httpx.ASGITransport(server)
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as http:
        answer = await http.post("/one/runsync", content=body)
    assert answer.status_code == status
    assert why in answer.json()["error"]
    described = document(routes)["paths"]
    assert "400" in described["/one/runsync"]["post"]["responses"]
    assert "422" in described["/lb/items"]["post"]["responses"], "a route answers as its worker does"
