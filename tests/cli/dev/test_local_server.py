"""Whom the local server answers: no page of another site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from stoker.cli.dev.dev import LOOPBACK
from stoker.cli.dev.local_server.server import LocalServer
from stoker.cli.dev.project import Project

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
