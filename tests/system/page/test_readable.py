"""The page for everybody: what axe-core finds, on a phone, in the dark, with keys alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.system.page.visitors import BROWSING, FILM_MS, Visitor
from tests.system.stack import Stack

pytestmark = BROWSING

PAGES = (
    "/",
    "/jobs?endpoint=tells",
    "/endpoints",
    "/endpoints/unlicensed",
    "/fleet",
    "/billing",
    "/resources",
)
SAYS = "document.activeElement.ariaLabel || document.activeElement.innerText || ''"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    scheme: Literal["light", "dark"], browser: Browser, stack: Stack, facts: dict[str, str], pictures: Path
) -> None:
    job = stack.run("tells", {"text": "why it failed"})
    stack.end_of("tells", job)
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    visitor = Visitor(context, facts["page"], pictures)
    found = {}
    visitor.opens("/sign-in")
    found["/sign-in"] = visitor.serious()
    page = visitor.signs_in(stack.key)
    for path in (*PAGES, f"/jobs/tells/{job}"):
        visitor.sees(path)
        found[path] = visitor.serious()
    visitor.opens("/")
    page.get_by_label("Prompt", exact=True).fill("a fox")
    page.get_by_role("button", name="Code").click()
    expect(page.get_by_text("The same call as code")).to_be_visible()
    expect(page.locator(".q-dialog__inner > div")).to_have_css("opacity", "1")
    expect(page.locator(".q-dialog__inner > div")).to_have_css("transform", "none")
    found["code"] = visitor.serious(".q-dialog")
    context.close()
    assert not any(found.values()), json.dumps(found, indent=1)


def test_nothing_is_wider_than_a_phone(
    browser: Browser, stack: Stack, facts: dict[str, str], pictures: Path
) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    visitor = Visitor(context, facts["page"], pictures)
    page = visitor.signs_in(stack.key)
    wide = []
    for path in PAGES:
        visitor.sees(path)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(path)
    for name in ("Playground", "Jobs", "Endpoints", "Fleet", "Billing", "Resources"):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_in_viewport()
    expect(page.get_by_role("button", name="Sign out")).to_be_in_viewport()
    context.close()
    assert wide == []


def test_a_picture_is_made_with_keys_alone(visitor: Visitor, stack: Stack) -> None:
    page = visitor.opens("/sign-in")
    page.keyboard.type(stack.key)  # the field has the focus
    page.keyboard.press("Enter")
    expect(page.get_by_text("Your results")).to_be_visible()

    def tab_to(name: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate(SAYS).endswith(name):
                return
        raise AssertionError(f"the key Tab never comes to {name}")

    tab_to("Prompt")
    page.keyboard.type("a yellow duck in the sea")
    tab_to("Run")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Completed ·")).to_be_visible(timeout=FILM_MS)
    tab_to("Jobs")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()


def test_dark_is_kept_from_page_to_page(visitor: Visitor, stack: Stack) -> None:
    page = visitor.signs_in(stack.key)
    page.get_by_role("button", name="Dark or light, as the system").click()
    expect(page.locator("body.body--dark")).to_be_visible()
    visitor.opens("/")
    expect(page.locator("body.body--dark")).to_be_visible()
    page.get_by_role("button", name="three yellow stars at night").click()
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("Completed ·")).to_be_visible(timeout=FILM_MS)
    visitor.keeps("playground-dark")
    for name in ("Dark", "Light"):
        page.get_by_role("button", name=name, exact=True).click()
    expect(page.locator("body.body--light")).to_be_visible()
