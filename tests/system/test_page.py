"""The page in a real browser, over a real control and agent: what people do first, and what nobody may do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stoker.cli.processes.readiness import parse_ready
from tests.browser import CHROMIUM, LOOPBACK_ONLY
from tests.system.stack import SOURCE, Stack, queue_endpoint, running

if CHROMIUM is None:
    pytest.skip("there is no chromium here", allow_module_level=True)
pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

pytestmark = pytest.mark.slow

PATIENCE_MS = 20_000
FILM_MS = 120_000
"""Covers the film's first piece and its end, whatever else the machine does meanwhile."""
MARKUP = "<img src=x onerror=document.title='OWNED'><script>document.title='OWNED'</script>"
NOTES_PREVIEWS = """() => {
    window.previews = new Set();
    new MutationObserver(() => {
        const shown = document.querySelectorAll("img[src^='data:image/']");
        for (const image of shown) window.previews.add(image.src);
    }).observe(document.body, {subtree: true, childList: true, attributes: true, attributeFilter: ["src"]});
}"""
ENDPOINTS = (
    queue_endpoint("echo", "outputs/echo.py").replace('name = "echo"', f"name = {json.dumps(MARKUP)}"),
    queue_endpoint("tells", "failing/raises_its_input.py"),
    queue_endpoint("slow", "cancelling/slow_until_cancelled.py"),
    queue_endpoint("raises", "failing/raises.py"),
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(
        tmp_path_factory.mktemp("stack"), *ENDPOINTS, hosted=("text-to-image", "talking-video")
    ) as made:
        yield made


@contextmanager
def page_process(stack: Stack, folder: Path) -> Iterator[dict[str, str]]:
    """`stoker page` beside the stack's control; yields its address and its link."""
    read, write = os.pipe()
    command = [sys.executable, "-P", "-m", "stoker.cli", "page", "--url", stack.facts["http"], "--port", "0"]
    with (folder / "page.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--ready-fd", str(write)],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "STOKER_API_KEY": stack.key},
            cwd=folder,
            pass_fds=[write],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(write)
    try:
        with open(read, "rb") as pipe:
            facts = parse_ready(pipe.readline())
        assert facts is not None, (folder / "page.log").read_text()
        yield dict(facts)
    finally:
        process.terminate()
        assert process.wait(60) == 0, (folder / "page.log").read_text()


@pytest.fixture(scope="module")
def facts(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with page_process(stack, tmp_path_factory.mktemp("page")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", f"--host-resolver-rules={LOOPBACK_ONLY}"]
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield made
        made.close()


class Visitor:
    """A browser with a session of its own. `errors` are what its console complained of."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context, self.address = context, address
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


@pytest.fixture
def visitor(browser: Browser, facts: dict[str, str]) -> Iterator[Visitor]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    expect.set_options(timeout=PATIENCE_MS)
    yield Visitor(context, facts["page"])
    context.close()


def made_key(stack: Stack, access: dict[str, Any]) -> str:
    answer = httpx2.post(
        f"{stack.facts['http']}/v1/keys",
        json={"name": f"visitor {MARKUP}"[:60], "access": access},
        headers={"Authorization": f"Bearer {stack.key}"},
        trust_env=False,
    )
    return str(answer.raise_for_status().json()["key"])


def test_the_link_signs_in_once_and_a_prompt_becomes_a_picture(
    visitor: Visitor, facts: dict[str, str], browser: Browser
) -> None:
    page = visitor.page
    page.goto(facts["link"])
    page.get_by_label("Prompt", exact=True).fill("a lighthouse in a storm")
    page.get_by_text("More choices").click()
    page.get_by_label("Width", exact=True).fill("512")
    page.get_by_label("Height", exact=True).fill("512")
    page.get_by_label("Seed", exact=True).fill("7")
    page.evaluate(NOTES_PREVIEWS)
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("Completed ·")).to_be_visible()
    assert page.evaluate("window.previews.size") >= 2, "it changes while the picture denoises"
    picture = page.locator("img[src*='X-Amz']").first
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 512
    expect(page.get_by_text("seed 7")).to_be_visible()
    page.get_by_role("button", name="Code").click()
    expect(page.get_by_text("Authorization: Bearer $STOKER_API_KEY")).to_be_visible()
    assert visitor.errors == []
    [cookie] = [one for one in visitor.context.cookies() if one["name"] == "stoker-page"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])")
    assert "sk_" not in stored
    assert "stoker-page" not in stored

    again = browser.new_context()
    other = again.new_page()
    other.goto(facts["link"])
    expect(other.get_by_text("This link was used before")).to_be_visible()
    other.goto(visitor.address)
    assert other.url.endswith("/sign-in"), "who is not signed in sees nothing"
    again.close()


def test_a_film_plays_while_it_is_made(visitor: Visitor, stack: Stack, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (320, 320), "gray").save(tmp_path / "face.png")
    voice = Path(__file__).parents[2] / "deploy" / "voice.flac"
    visitor.signs_in(stack.key)
    page = visitor.opens("/?endpoint=talking-video")
    page.get_by_label("Prompt", exact=True).fill("somebody talks")
    image, audio = page.locator("input[type=file]").all()[:2]
    image.set_input_files(tmp_path / "face.png")
    expect(page.get_by_text("face.png is there")).to_be_visible()
    audio.set_input_files(voice)
    expect(page.get_by_text("voice.flac is there")).to_be_visible()
    page.get_by_role("combobox", name="Size").click()
    page.get_by_role("option", name="480p").click()
    page.get_by_role("button", name="Run").click()
    film = page.locator("video[src^='/film/']")
    expect(film).to_be_visible(timeout=FILM_MS)
    assert (
        film.evaluate(
            "film => new Promise(done => { film.onloadeddata = () => done(film.videoWidth); "
            "if (film.readyState >= 2) done(film.videoWidth) })"
        )
        > 0
    )
    expect(page.get_by_text("Completed ·")).to_be_visible(timeout=FILM_MS)


def test_a_running_job_is_cancelled_on_its_page(visitor: Visitor, stack: Stack) -> None:
    job = stack.run("slow", {})
    stack.in_progress("slow", job)
    visitor.signs_in(stack.key)
    page = visitor.opens(f"/jobs/slow/{job}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("CANCELLED", exact=True)).to_be_visible()


def test_markup_is_text_wherever_it_stands(visitor: Visitor, stack: Stack) -> None:
    output = stack.run("echo", {"prompt": MARKUP, MARKUP: [MARKUP], "image_url": f"javascript:{MARKUP}"})
    stack.end_of("echo", output)
    told = stack.run("tells", {"text": MARKUP})
    stack.end_of("tells", told)
    made_key(stack, {"scope": "read"})
    visitor.signs_in(stack.key)
    for path in (
        f"/jobs/echo/{output}",
        f"/jobs/tells/{told}",
        "/jobs?endpoint=echo",
        "/endpoints",
        "/resources?kind=Keys",
        "/resources?kind=Audit",
        "/jobs/echo/%3Cscript%3Edocument.title%3D'OWNED'%3C%2Fscript%3E",
        "/?endpoint=%3Cscript%3Edocument.title%3D'OWNED'%3C/script%3E",
    ):
        page = visitor.opens(path)
        expect(page.get_by_role("main")).to_be_visible()
        page.wait_for_load_state("networkidle")
        assert "OWNED" not in page.title(), path
        assert page.locator("img[src=x]").count() == 0, path
    page = visitor.opens(f"/jobs/echo/{output}")
    expect(page.get_by_text("onerror").first).to_be_visible()


def test_a_key_that_reads_sees_and_cannot_act(visitor: Visitor, stack: Stack) -> None:
    visitor.signs_in(made_key(stack, {"scope": "read"}))
    page = visitor.page
    expect(page.get_by_text("may not run it")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    visitor.opens("/endpoints")
    expect(page.get_by_text("text-to-image", exact=True).first).to_be_visible()
    assert page.get_by_role("button", name="Edit").count() == 0
    visitor.opens("/fleet")
    expect(page.get_by_text("connected")).to_be_visible()
    assert page.get_by_role("button", name="Drain").count() == 0


def test_a_key_of_one_endpoint_sees_that_and_no_results_of_others(
    visitor: Visitor, browser: Browser, stack: Stack, facts: dict[str, str]
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
    visitor.opens("/fleet")
    expect(page.get_by_text("may not look at nodes")).to_be_visible()

    context = browser.new_context()
    other = Visitor(context, facts["page"])
    other.signs_in(second)
    expect(other.page.get_by_text("Nothing yet")).to_be_visible()
    assert other.page.get_by_text("only the first sees this").count() == 0
    context.close()


def test_a_failure_is_told_and_a_node_is_drained_and_resumed(visitor: Visitor, stack: Stack) -> None:
    job = stack.run("raises", {})
    stack.end_of("raises", job)
    visitor.signs_in(stack.key)
    page = visitor.opens(f"/jobs/raises/{job}")
    expect(page.get_by_text("Failed", exact=True)).to_be_visible()
    visitor.opens("/fleet")
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_text("drained", exact=True)).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("connected", exact=True)).to_be_visible()


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
