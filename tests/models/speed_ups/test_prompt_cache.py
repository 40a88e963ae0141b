"""A prompt that comes again is not encoded again, and draws the same bytes."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.models.speed_ups.prompt_cache import PromptCache, prompt_cache
from stoker.models.speed_ups.speed_up import Loaded, NotHere
from tests.models.speed_ups.pictures import loaded, most, picture


def test_a_prompt_is_encoded_once_and_the_picture_is_the_same(flux: Any, plain: Any) -> None:
    calls: list[int] = []
    flux.pipe.text_encoder_2.register_forward_hook(lambda *_: calls.append(1))
    prompt_cache(loaded(flux))
    first, second = picture(flux), picture(flux)
    assert (most(first, plain), most(second, plain), len(calls)) == (0, 0, 1)
    assert picture(flux, seed=2).shape == plain.shape
    assert (flux.pipe.encode_prompt.hits, len(calls)) == (2, 1)


def encoder(calls: list[Any]) -> Any:
    import torch

    def encode(prompt: str, *, length: int = 4) -> Any:
        calls.append(prompt)
        return torch.ones(length, dtype=torch.float32), [None]

    return encode


def test_other_arguments_are_other_prompts() -> None:
    calls: list[Any] = []
    cache = PromptCache(encoder(calls))
    for prompt, length in (("a", 4), ("b", 4), ("a", 8), ("a", 4), ("b", 4)):
        assert len(cache(prompt, length=length)[0]) == length
    assert calls == ["a", "b", "a"]


def test_the_least_recently_used_goes_first() -> None:
    calls: list[Any] = []
    cache = PromptCache(encoder(calls), limit_bytes=48)  # three of 16 bytes
    for prompt in ("a", "b", "c", "a", "d", "a", "c", "b"):
        cache(prompt)
    assert calls == ["a", "b", "c", "d", "b"]
    assert cache.size_bytes == 48


def test_a_prompt_larger_than_the_cache_is_still_encoded() -> None:
    cache = PromptCache(encoder([]), limit_bytes=1)
    assert len(cache("a", length=100)[0]) == 100
    cache("b")
    assert cache.size_bytes == 16


def test_what_is_encoded_already_is_not_kept() -> None:
    import torch

    calls: list[Any] = []
    cache = PromptCache(encoder(calls))
    given = torch.ones(1)
    cache(given)
    cache([given])
    assert (len(calls), cache.size_bytes) == (2, 0)


def test_after_other_weights_prompts_are_encoded_again() -> None:
    calls: list[Any] = []
    cache = PromptCache(encoder(calls))
    cache("a")
    cache.forget()
    cache("a")
    assert calls == ["a", "a"]


def test_no_prompt_is_kept_as_text() -> None:
    cache = PromptCache(encoder([]))
    cache("a secret")
    assert "secret" not in repr(vars(cache))


def test_a_pipeline_that_encodes_no_prompt_is_left_as_it_is() -> None:
    with pytest.raises(NotHere):
        prompt_cache(Loaded(None, None, "cpu", pipe=object()))
