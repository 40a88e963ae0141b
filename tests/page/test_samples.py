"""The code that can be copied is code: it says the same input in each language, and contains no key."""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.http.openai.images import parse_edit, parse_images
from stoker.page.content.samples import samples

URL = "https://control.example.com"
INPUTS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    max_size=4,
)


@given(INPUTS)
def test_each_says_the_same_input(job_input: dict[str, Any]) -> None:
    found = samples(URL, "my-endpoint", job_input)
    words = shlex.split(found["curl"])
    assert json.loads(words[words.index("-d") + 1]) == {"input": job_input}
    [call] = [
        node
        for node in ast.walk(ast.parse(found["Python"]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run"
    ]
    assert ast.literal_eval(call.args[1]) == job_input
    assert json.dumps({"input": job_input}, ensure_ascii=False) in found["JavaScript"]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(1, 10))
def test_the_openai_client_is_shown_where_a_prompt_makes_an_image(prompt: str, number: int) -> None:
    job_input = {"prompt": prompt, "width": 512, "height": 256, "num_images": number, "seed": 3}
    ast.parse(found := samples(URL, "text-to-image", job_input)["OpenAI"])
    assert repr(prompt) in found
    assert "'512x256'" in found
    assert "extra_body={'seed': 3}" in found
    assert f"base_url='{URL}/openai/v1'" in found
    assert "model='text-to-image'" in found


@given(
    st.fixed_dictionaries(
        {"prompt": st.text(min_size=1), "image_format": st.sampled_from(["png", "jpeg"])},
        optional={
            "seed": st.integers(-1, 9),
            "scheduler": st.just("euler"),
            "strength": st.just(0.5),
            "image": st.just("http://a/i.png"),
            "images": st.just(["http://a/i.png", "http://a/j.png"]),
            "mask_image": st.just("http://a/m.png"),
            "strict": st.just(False),
            "loras": st.just([]),
        },
    )
)
def test_the_openai_client_is_shown_a_call_that_is_taken(job_input: dict[str, Any]) -> None:
    found = samples(URL, "text-to-image", job_input)["OpenAI"]
    [call] = [
        node
        for node in ast.walk(ast.parse(found))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("client.images.")
    ]
    sent = {one.arg: one.value for one in call.keywords if one.arg not in ("image", "mask")}
    body = {name: ast.literal_eval(value) for name, value in sent.items()}
    files = [one.arg for one in call.keywords if one.arg in ("image", "mask")]
    body |= body.pop("extra_body", {})
    if ast.unparse(call.func) == "client.images.edit":
        parse_edit({**body, **dict.fromkeys(files, "http://a/i.png")})
    else:
        assert not {"image", "images"} & job_input.keys()
        parse_images({name: value for name, value in body.items() if name != "strength"})
    assert body["output_format"] == job_input["image_format"]


def test_the_openai_client_is_not_shown_what_it_cannot_send() -> None:
    assert "OpenAI" not in samples(URL, "text-to-image", {"prompt": "x", "loras": [{"name": "ink"}]})


def test_the_openai_client_makes_a_film_of_an_image_and_a_sound() -> None:
    job_input = {"prompt": "x", "image": "http://a/i.png", "audio": "http://a/v.wav", "size": "480p"}
    ast.parse(found := samples(URL, "talking-video", job_input)["OpenAI"])
    assert "extra_body={'input_reference': 'http://a/i.png', 'audio': 'http://a/v.wav'}" in found
    assert "OpenAI" not in samples(URL, "e", {"audio": "y"})


def test_one_of_several_addresses_is_called_and_the_client_knows_all_of_them() -> None:
    first, second = "https://a.example.com", "https://b.example.com"
    found = samples(f"{first}/v2/, {second}/", "text-to-image", {"prompt": "x"})
    assert f"with Client('{first},{second}') as stoker:" in found["Python"]
    for language in ("curl", "JavaScript", "OpenAI"):
        assert first in found[language]
        assert second not in found[language]
        assert "/v2/," not in found[language]
    assert f"curl {first}/v2/text-to-image/runsync" in found["curl"]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_the_javascript_can_be_parsed(tmp_path: Path) -> None:
    file = tmp_path / "sample.mjs"
    file.write_text(samples(URL, "e", {"prompt": "`${1}` </script> \u2028"})["JavaScript"])
    subprocess.run(["node", "--check", file], check=True, capture_output=True)
