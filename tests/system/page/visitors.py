"""Visitors of the page: browsers with sessions of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import CHROMIUM
from tests.system.stack import Stack

BROWSING = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here"),
]
"""The marks of all tests with a browser."""

PATIENCE_MS = 20_000
FILM_MS = 120_000
"""Covers a picture, a film's first piece and its end, whatever else the machine does meanwhile."""
MARKUP = "<img src=x onerror=document.title='OWNED'><script>document.title='OWNED'</script>"


class Visitor:
    """A browser with a session of its own. `errors` are what its console complained of."""

    def __init__(self, context: BrowserContext, address: str, pictures: Path) -> None:
        self.context, self.address, self._pictures = context, address, pictures
        self.errors: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))

    def opens(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page

    def signs_in(self, key: str) -> Page:
        self.opens("/sign-in").get_by_label("API key").fill(key)
        with self.page.expect_navigation():
            self.page.get_by_role("button", name="Sign in").click()
        return self.page

    def sees(self, path: str) -> Page:
        """Opens a page, and returns it once it is drawn."""
        self.opens(path)
        expect(self.page.get_by_role("main")).to_be_visible()
        if path == "/" or path.startswith("/?"):  # drawn once the browser is connected
            expect(self.page.get_by_text("Your results")).to_be_visible()
        self.page.evaluate("document.fonts.ready.then(() => null)")
        return self.page

    def keeps(self, name: str) -> None:
        """Keeps a picture of what is seen now, from the top."""
        self.page.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))")
        seen = "image => image.complete || new Promise(done => (image.onload = image.onerror = done))"
        self.page.evaluate(f"Promise.all([...document.images].map({seen}))")
        self.page.screenshot(path=self._pictures / f"{name}.jpg", type="jpeg", quality=80)
        assert (self._pictures / f"{name}.jpg").stat().st_size < 200_000

    def serious(self, part: str = "html") -> list[str]:
        """What axe-core finds in a part of the page that is serious or critical."""
        found = Axe().run(self.page, context=part).response["violations"]
        return [
            f"{one['id']}: {one['help']}: {node['html'][:200]} {node['failureSummary'][:300]}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]


def made_key(stack: Stack, access: dict[str, Any]) -> str:
    answer = httpx2.post(
        f"{stack.facts['http']}/v1/keys",
        json={"name": f"visitor {MARKUP}"[:60], "access": access},
        headers={"Authorization": f"Bearer {stack.key}"},
        trust_env=False,
    )
    return str(answer.raise_for_status().json()["key"])
