"""The page in a browser: what nobody may do, and what nobody sees of others."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
from playwright.sync_api import Browser, expect

from tests.system.page.visitors import BROWSING, MARKUP, Visitor, made_key
from tests.system.stack import Stack

pytestmark = BROWSING


def test_markup_is_text_wherever_it_stands(visitor: Visitor, stack: Stack) -> None:
    output = stack.run("echo", {"prompt": MARKUP, MARKUP: [MARKUP], "image_url": f"javascript:{MARKUP}"})
    stack.end_of("echo", output)
    told = stack.run("tells", {"text": MARKUP, MARKUP: MARKUP})
    stack.end_of("tells", told)
    made_key(stack, {"scope": "read"})
    made_resources(stack)
    visitor.signs_in(stack.key)
    for path in (
        f"/jobs/echo/{output}",
        f"/jobs/tells/{told}",
        "/jobs?endpoint=echo",
        "/endpoints",
        "/endpoints/echo",
        "/endpoints/unlicensed",
        "/?endpoint=tells",
        "/fleet",
        "/billing",
        "/resources?kind=Keys",
        "/resources?kind=Audit",
        "/resources?kind=Templates",
        "/resources?kind=Volumes",
        "/resources?kind=Pods",
        "/jobs/echo/%3Cscript%3Edocument.title%3D'OWNED'%3C%2Fscript%3E",
        "/?endpoint=%3Cscript%3Edocument.title%3D'OWNED'%3C/script%3E",
    ):
        page = visitor.sees(path)
        assert "OWNED" not in page.title(), path
        assert page.locator("img[src=x]").count() == 0, path
    for path in (f"/jobs/echo/{output}", f"/jobs/tells/{told}", "/?endpoint=tells", "/endpoints"):
        page = visitor.opens(path)
        expect(page.get_by_text("onerror").first).to_be_visible()
    page = visitor.opens("/?endpoint=talking-video")
    page.locator("input[type=file]").first.set_input_files(
        {"name": MARKUP.replace("/", "_"), "mimeType": "image/png", "buffer": b"x"}
    )
    expect(page.get_by_text("is there").first).to_be_visible()
    assert "OWNED" not in page.title()
    assert page.locator("img[src=x]").count() == 0
    assert [one for one in visitor.errors if "Content Security Policy" in one] == []


def made_resources(stack: Stack) -> None:
    """One of each kind with markup in every field that may have it."""
    headers = {"Authorization": f"Bearer {stack.key}"}
    image = {"name": MARKUP, "imageName": "acme/box:1", "readme": MARKUP, "env": {"A": MARKUP}}
    for path, fields in (
        ("templates", {**image, "isServerless": True}),
        ("networkvolumes", {"name": MARKUP, "size": 1, "dataCenterId": "EU-RO-1"}),
    ):
        answer = httpx2.post(
            f"{stack.facts['http']}/v1/{path}", json=fields, headers=headers, trust_env=False
        )
        assert answer.is_success, answer.text


def test_a_key_that_reads_sees_and_cannot_act(visitor: Visitor, stack: Stack) -> None:
    visitor.signs_in(made_key(stack, {"scope": "read"}))
    page = visitor.page
    expect(page.get_by_text("may not run it")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    visitor.opens("/endpoints")
    expect(page.get_by_text("text-to-image", exact=True).first).to_be_visible()
    assert page.get_by_role("button", name="Edit").count() == 0
    visitor.opens("/fleet")
    expect(page.get_by_text("connected", exact=True)).to_be_visible()
    assert page.get_by_role("button", name="Drain").count() == 0


def test_a_key_of_one_endpoint_sees_that_and_no_results_of_others(
    visitor: Visitor, browser: Browser, stack: Stack, facts: dict[str, str], pictures: Path
) -> None:
    first = made_key(stack, {"scope": "restricted", "endpoints": {"echo": "write"}})
    second = made_key(stack, {"scope": "restricted", "endpoints": {"echo": "write"}})
    page = visitor.signs_in(first)
    page.get_by_label("Input", exact=True).fill(json.dumps({"prompt": "only the first sees this"}))
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("button", name="Again with changes")).to_be_visible()
    visitor.opens("/endpoints")
    expect(page.get_by_text("echo", exact=True).first).to_be_visible()
    assert page.get_by_text("text-to-image").count() == 0
    visitor.opens("/endpoints/echo")
    expect(page.get_by_text("Throughput")).to_be_visible()
    assert page.get_by_role("button", name="Edit").count() == 0
    visitor.opens("/endpoints/slow")
    expect(page.get_by_text("There is no endpoint slow")).to_be_visible()
    visitor.opens("/fleet")
    expect(page.get_by_text("may not look at nodes")).to_be_visible()

    context = browser.new_context()
    other = Visitor(context, facts["page"], pictures)
    other.signs_in(second)
    expect(other.page.get_by_text("Nothing yet")).to_be_visible()
    assert other.page.get_by_text("only the first sees this").count() == 0
    context.close()


def test_a_wrong_key_is_told_and_signing_out_ends_the_session(visitor: Visitor, stack: Stack) -> None:
    page = visitor.signs_in("sk_000000000000_" + 48 * "0")
    expect(page.get_by_role("alert")).to_be_visible()
    visitor.signs_in(stack.key)
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    other_tab = visitor.context.new_page()
    other_tab.goto(visitor.address + "/fleet")
    expect(other_tab.get_by_text("connected", exact=True)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(other_tab.get_by_label("API key")).to_be_visible()
    expect(page.get_by_label("API key")).to_be_visible()
    visitor.opens("/jobs")
    assert page.url.endswith("/sign-in")
