"""The explorers work without the internet, list the endpoints, and show what hosted models take."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from stoker.control.http.calls.app import make_app
from stoker.control.http.server.server import serve_http
from tests.browser import CHROMIUM, in_browser
from tests.control.http.calls.fake_plane import IMAGE_SCHEMA, FakePlane
from tests.control.http.management.managed import managed

ADDRESS = re.compile(r"""(?:src|href)\s*=\s*["']([^"']+)|url:\s*["']([^"']+)""")


def addresses(page: str) -> set[str]:
    return {first or second for first, second in ADDRESS.findall(page)}


@pytest.mark.parametrize("path", ["/docs", "/v1/docs"])
async def test_a_page_names_no_other_host_and_all_that_it_names_is_here(path: str) -> None:
    async with (
        managed() as api,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(api.app), base_url="http://stoker"
        ) as unauthenticated,
    ):
        page = await unauthenticated.get(path)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        named = addresses(page.text)
        assert {
            f"/docs/assets/{one}" for one in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png")
        } < named
        assert {one for one in named if urlsplit(one).netloc} == set()
        assert "//" not in re.sub(r"<!--.*?-->", "", page.text), "no address of another host in its script"
        assert '"validatorUrl": null' in page.text
        for one in named:
            answer = await unauthenticated.get(one)
            assert answer.status_code == 200, one
            assert len(answer.content) > 1_000
        assert (await unauthenticated.get("/docs/assets/../explorer.py")).status_code == 404


@pytest.mark.parametrize("path", ["/docs", "/v1/docs"])
async def test_no_other_page_frames_a_page_and_only_its_own_scripts_run(path: str) -> None:
    async with (
        managed() as api,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(api.app), base_url="http://stoker") as caller,
    ):
        page = await caller.get(path)
    policy = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    assert (policy["frame-ancestors"], policy["default-src"]) == ("'none'", "'none'")
    assert page.headers["x-frame-options"] == "DENY"
    [own] = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert policy["connect-src"] == "'self'"


async def test_the_document_lists_the_endpoints_and_what_they_take(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    document = (await http.get("/openapi.json")).json()
    reported = document["info"]["description"]
    assert "| `text-to-image` | schema `text-to-image.input`, below |" in reported
    assert "| `echo` | any object |" in reported
    assert document["components"]["schemas"]["text-to-image.input"] == IMAGE_SCHEMA
    plane.endpoints.load([])
    document = (await http.get("/openapi.json")).json()
    assert "There are no endpoints yet." in document["info"]["description"]
    assert "text-to-image.input" not in document["components"]["schemas"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to show the explorers in")
async def test_a_browser_shows_it_without_a_packet_off_loopback(plane: FakePlane, tmp_path: Path) -> None:
    async with await serve_http(make_app(plane), "127.0.0.1", 0, grace_s=1) as server:
        page, connected = await in_browser(f"{server.url}/docs", tmp_path)
    assert connected == {"127.0.0.1"}
    assert "Queues a job and answers at once" in page, "an operation"
    assert "text-to-image.input" in page
    assert "Unable to render" not in page
