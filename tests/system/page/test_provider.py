"""The page in a browser: somebody signs in at an identity provider, whose tokens control takes."""

from __future__ import annotations

import json
import time
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.control.auth.issuer import Issuer, issuing
from tests.system.page.conftest import page_process
from tests.system.page.visitors import BROWSING, PATIENCE_MS, Visitor
from tests.system.stack import START_S, Stack, until

pytestmark = BROWSING

KEPT = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"


def section(issuer: Issuer) -> str:
    return f'''
[oidc]
issuer = "{issuer.url}"
audience = ["stoker", "page"]
rights = {{ guests = "read" }}
'''


def test_somebody_signs_in_looks_around_and_signs_out(
    tmp_path: Path, browser: Browser, pictures: Path
) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    with issuing() as issuer:
        issuer.claims, issuer.refreshes = {"groups": ["guests"]}, True
        stack = Stack(tmp_path, section(issuer))
        try:
            stack.start_control()
            options = ("--oidc-issuer", issuer.url, "--oidc-client-id", "page")
            with page_process(stack, tmp_path, *options) as facts:
                context = browser.new_context()
                visitor = Visitor(context, facts["page"], pictures)
                page = visitor.opens("/sign-in")
                assert visitor.serious() == []
                seen: list[str] = []
                page.on("request", lambda request: seen.append(request.url))
                issuer.claims["exp"] = int(time.time()) + 90  # renewed after half a minute
                page.get_by_role("link", name="Sign in at 127.0.0.1").click()
                expect(page.get_by_role("button", name="Sign out")).to_be_visible()
                issuer.claims["exp"] = int(time.time()) + 3600
                assert page.url == f"{facts['page']}/"
                assert any(url.startswith(f"{issuer.url}/authorize?") for url in seen)
                assert "eyJ" not in json.dumps(seen) + page.content() + page.evaluate(KEPT)
                kept = {one["name"]: one for one in context.cookies()}
                assert [(name, one["httpOnly"]) for name, one in kept.items()] == [("stoker-page", True)]
                assert "eyJ" not in kept["stoker-page"]["value"]
                until(lambda: issuer.renewed > 0, START_S, "a renewal of the session")
                visitor.opens("/resources?kind=Keys")
                expect(page.get_by_text("may do nothing")).to_have_count(0)
                expect(page.get_by_role("main")).to_be_visible()
                page.get_by_role("button", name="Sign out").click()
                expect(page.get_by_label("API key")).to_be_visible()
                visitor.opens("/jobs")
                assert page.url.endswith("/sign-in")
                assert visitor.errors == []
                context.close()
        finally:
            stack.stop()
