"""What the control plane reads about models: plain data, without any model library."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from stoker.models.registry import MODELS, PIPELINES, UnknownPipeline, choose_pipeline, pipeline
from stoker.models.talking_video.profiles import PROFILES

_LIGHT = """
import sys
import stoker.models.registry, stoker.models.declaration, stoker.models.weights
from stoker.models.text_to_image import declaration, request, tiny
from stoker.models.talking_video import chunks, declaration, memory, profiles, request, schedule, sizes, tiny
heavy = {"torch", "diffusers", "transformers", "accelerate", "huggingface_hub"} & set(sys.modules)
assert not heavy, heavy
"""


def test_declarations_and_weights_import_no_model_library() -> None:
    subprocess.run([sys.executable, "-P", "-c", _LIGHT], check=True, timeout=60)


def test_the_image_model_is_hosted() -> None:
    model = MODELS["text-to-image"]
    assert model.handler == "stoker.models.text_to_image.handler:TextToImage"
    assert json.loads(json.dumps([dict(model.schema), list(model.prices)]))[1] == [
        {"metric": "output_pixels", "nano_usd": 20}
    ]
    assert not pipeline(model.default_pipeline).wants_gpu


def test_the_handler_reference_leads_to_a_handler() -> None:
    from stoker.models.text_to_image.handler import TextToImage
    from stoker.worker.registration import register

    register(TextToImage)
    module, _, name = MODELS["text-to-image"].handler.partition(":")
    assert (TextToImage.__module__, TextToImage.__name__) == (module, name)


@pytest.mark.parametrize(
    ("asked", "kind", "here", "chosen"),
    [
        (None, "cpu", set(), "flux-tiny"),
        (None, "cpu", {"flux-1-dev"}, "flux-tiny"),
        (None, "gpu", set(), "flux-tiny"),
        (None, "gpu", {"flux-1-dev"}, "flux-1-dev"),
        (None, "mig", {"flux-1-dev"}, "flux-1-dev"),
        ("", "gpu", {"flux-1-dev"}, "flux-1-dev"),
        ("flux-1-schnell", "gpu", set(), "flux-1-schnell"),
        ("flux-tiny", "gpu", {"flux-1-dev"}, "flux-tiny"),
        ("flux-1-schnell, talk-tiny", "gpu", {"infinitetalk"}, "talk-tiny"),
    ],
)
def test_which_pipeline_is_chosen(asked: str | None, kind: str, here: set[str], chosen: str) -> None:
    model = MODELS[pipeline(chosen).model]
    assert choose_pipeline(model, asked, kind, here.__contains__).name == chosen


@pytest.mark.parametrize(
    ("asked", "kind", "here", "chosen"),
    [
        (None, "cpu", set(), "talk-tiny"),
        (None, "cpu", {"infinitetalk"}, "talk-tiny"),
        (None, "gpu", set(), "talk-tiny"),
        (None, "gpu", {"infinitetalk"}, "infinitetalk"),
        (None, "mig", {"infinitetalk", "infinitetalk-fast"}, "infinitetalk"),
        ("infinitetalk-fast", "gpu", {"infinitetalk-fast"}, "infinitetalk-fast"),
        ("flux-1-dev", "gpu", {"infinitetalk"}, "infinitetalk"),
    ],
)
def test_which_video_pipeline_is_chosen(asked: str | None, kind: str, here: set[str], chosen: str) -> None:
    assert choose_pipeline(MODELS["talking-video"], asked, kind, here.__contains__).name == chosen


def test_every_pipeline_of_the_video_model_has_a_profile() -> None:
    profiles = {entry.name: entry.profile for entry in PIPELINES.values() if entry.model == "talking-video"}
    assert profiles == {"talk-tiny": "tiny", "infinitetalk": "exact", "infinitetalk-fast": "fast"}
    assert set(profiles.values()) <= set(PROFILES)


def test_the_video_model_is_hosted() -> None:
    model = MODELS["talking-video"]
    assert model.schema["required"] == ["prompt", "image", "audio", "size"]
    assert [price["nano_usd"] for price in model.prices] == [250_000_000, 500_000_000]
    assert not pipeline(model.default_pipeline).wants_gpu


def test_an_unknown_pipeline_is_answered_with_the_known() -> None:
    with pytest.raises(
        UnknownPipeline, match="no pipeline 'sdxl'; registered are flux-1-dev, flux-1-schnell"
    ):
        choose_pipeline(MODELS["text-to-image"], "sdxl", "cpu", lambda _: True)
