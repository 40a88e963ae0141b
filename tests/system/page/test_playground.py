"""The playground in a browser: what people do first."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.load_module import load_module
from tests.system.page.visitors import BROWSING, FILM_MS, Visitor
from tests.system.stack import Stack

pytestmark = BROWSING

DEPLOY = Path(__file__).parents[3] / "deploy"
NOTES_FILM = """() => {
    window.filmWhile = "";
    new MutationObserver(() => {
        if (!window.filmWhile && document.querySelector("video[src^='/film/']"))
            window.filmWhile = document.querySelector("[role=status]").textContent;
    }).observe(document.body, {subtree: true, childList: true, attributes: true});
}"""
NOTES_PREVIEWS = """() => {
    window.previews = new Set();
    new MutationObserver(() => {
        const shown = document.querySelectorAll("img[src^='data:image/']");
        for (const image of shown) window.previews.add(image.src);
    }).observe(document.body, {subtree: true, childList: true, attributes: true, attributeFilter: ["src"]});
}"""


def test_the_link_signs_in_once_and_a_prompt_becomes_a_picture(
    visitor: Visitor, facts: dict[str, str], browser: Browser
) -> None:
    page = visitor.page
    page.goto(facts["link"])
    page.get_by_role("button", name="a lighthouse in the snow").click()
    page.get_by_text("More choices").click()
    page.get_by_label("Width", exact=True).fill("512")
    page.get_by_label("Height", exact=True).fill("512")
    page.get_by_label("Seed", exact=True).fill("7")
    page.evaluate(NOTES_PREVIEWS)
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("Completed ·")).to_be_visible(timeout=FILM_MS)
    assert page.evaluate("window.previews.size") >= 2, "it changes while the picture denoises"
    picture = page.locator("img[src*='X-Amz']").first
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 512
    expect(page.get_by_text("seed 7")).to_be_visible()
    expect(page.get_by_role("img", name="a lighthouse in the snow").first).to_be_visible()
    page.get_by_text("More choices").click()
    expect(page.get_by_label("Negative prompt", exact=True)).to_be_hidden()
    visitor.keeps("playground")
    page.get_by_role("button", name="Code").click()
    expect(page.get_by_text("Authorization: Bearer $STOKER_API_KEY")).to_be_visible()
    page.get_by_role("tab", name="OpenAI").click()
    expect(page.get_by_text("/openai/v1")).to_be_visible()
    page.get_by_role("button", name="Close").click()
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
    load_module("talking_picture", DEPLOY / "talking_picture.py").draw_face(tmp_path / "face.png")
    visitor.signs_in(stack.key)
    page = visitor.opens("/?endpoint=talking-video")
    page.get_by_label("Prompt", exact=True).fill("somebody talks")
    image, audio = page.locator("input[type=file]").all()[:2]
    image.set_input_files(tmp_path / "face.png")
    expect(page.get_by_text("face.png is there")).to_be_visible()
    audio.set_input_files(DEPLOY / "voice.flac")
    expect(page.get_by_text("voice.flac is there")).to_be_visible()
    page.get_by_role("combobox", name="Size").click()
    page.get_by_role("option", name="480p").click()
    page.evaluate(NOTES_FILM)
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
    visitor.keeps("film")
    expect(page.get_by_text("Completed ·")).to_be_visible(timeout=FILM_MS)
    assert not page.evaluate("window.filmWhile").startswith("Completed"), "it plays while it is made"
