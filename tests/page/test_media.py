"""Only addresses of the web are shown as pictures and films; everything else is text."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.page.content.media import Medium, film_of, kind_of, media_of, preview_of, progress_of

HOSTILE = (
    "javascript:alert(1)//.png",
    "data:text/html,<b>.png",
    "file:///etc/x.png",
    "//host/x.png",
    "x.png",
    "http://[",
)


@pytest.mark.parametrize("url", HOSTILE)
def test_other_schemes_are_no_media(url: str) -> None:
    assert kind_of(url) is None
    assert kind_of(url, "image_url") is None
    assert media_of({"image_url": url}) == ()


def test_media_are_found_wherever_they_stand_once_each() -> None:
    picture, video = "https://s3.example/a.PNG?X-Amz=1", "http://s3.example/film.mp4"
    output = {"image_url": picture, "more": [{"video": video}, picture, "https://s3.example/page.html"]}
    assert media_of(output) == (Medium("image", picture), Medium("video", video))
    assert media_of({"image_url": "https://s3.example/without-an-ending"})[0].kind == "image"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.sampled_from(HOSTILE),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    )
)
def test_any_output_is_looked_through(output: Any) -> None:
    for medium in media_of(output):
        assert medium.url.lower().startswith(("http://", "https://"))
    preview_of(output)
    film_of(output)
    progress_of(output)


def test_a_deep_output_ends() -> None:
    output: Any = "https://s3.example/a.png"
    for _ in range(5000):
        output = [output]
    assert media_of(output) == ()


def test_a_preview_is_base64_of_a_known_kind() -> None:
    data = base64.b64encode(b"picture").decode()
    assert preview_of({"preview": {"format": "jpeg", "data": data}}) == f"data:image/jpeg;base64,{data}"
    assert preview_of({"preview": {"format": "svg+xml", "data": data}}) is None
    assert preview_of({"preview": {"format": "png", "data": '"><script>'}}) is None
    assert film_of({"video": {"data": data}}) == b"picture"
    assert film_of({"video": {"data": "-"}}) is None


@given(st.integers(), st.integers(), st.integers(), st.integers())
def test_progress_lies_between_none_and_all(chunk: int, chunks: int, step: int, steps: int) -> None:
    found = progress_of({"chunk": chunk, "chunks": chunks, "step": step, "steps": steps})
    assert found is None or 0 <= found[0] <= 1
    found = progress_of({"step": step, "steps": steps})
    assert found is None or 0 <= found[0] <= 1


def test_progress_in_words() -> None:
    assert progress_of({"step": 7, "steps": 28}) == (0.25, "step 7 of 28")
    assert progress_of({"chunk": 2, "chunks": 2, "step": 1, "steps": 2}) == (
        0.75,
        "chunk 2 of 2, step 1 of 2",
    )
    assert progress_of({"step": "7", "steps": 28}) is None
