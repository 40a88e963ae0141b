"""A prompt is cleaned as the authors' code does; diffusers carries the same lines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.talking_video import pipeline
from stoker.models.talking_video.sampling.prompt import MAX_CHARACTERS, cleaned

odd = st.sampled_from(
    ["Ã©", "â€œ", "”", "’", "&amp;lt;", "&eacute;", "\u00a0", "\t\n", "ﬁ", "\x1b[31m", "中", " "]
)


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("a cafÃ© in the rain", "a café in the rain"),
        ("â€œHelloâ€\x9d, she says", '"Hello", she says'),
        ("the “fox’s” coat", 'the "fox\'s" coat'),
        ("salt &amp;amp; pepper", "salt & pepper"),
        ("  two\u00a0 \n words ", "two words"),
    ],
)
def test_what_the_encoder_reads(prompt: str, read: str) -> None:
    assert cleaned(prompt) == read


@given(st.lists(st.text(max_size=8) | odd, max_size=12).map("".join))
def test_it_is_what_the_library_does(prompt: str) -> None:
    from diffusers.pipelines.wan.pipeline_wan_i2v import prompt_clean

    assert cleaned(prompt) == prompt_clean(prompt)


def test_the_tokenizer_gets_the_cleaned_prompt(video_pipeline: Any) -> None:
    import torch

    [spoilt, clean] = pipeline.encode_prompts(video_pipeline, ["a cafÃ© &amp; a “fox”", 'a café & a "fox"'])
    assert torch.equal(spoilt, clean)


def test_of_a_prompt_without_end_only_what_may_be_read_is_cleaned() -> None:
    assert cleaned("x " * 10_000_000) == " ".join(["x"] * (MAX_CHARACTERS // 2))
