"""The files of flux-mini's folder that are not trained."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stoker.models.made_weights import write_files
from stoker.models.text_to_image.mini import networks, weights
from training.flux_mini.captions import caption
from training.flux_mini.scenes import scene


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("flux-mini")
    write_files(made, weights.texts())
    return made


def test_the_tokenizers_divide_captions_as_training_did(folder: Path) -> None:
    from transformers import CLIPTokenizer, T5TokenizerFast

    t5 = T5TokenizerFast.from_pretrained(folder / "tokenizer_2")
    clip = CLIPTokenizer.from_pretrained(folder / "tokenizer")
    fixed = {"padding": "max_length", "max_length": networks.TEXT_TOKENS, "truncation": True}
    rng = random.Random(0)
    for text in ("", *(caption(scene(rng)) for _ in range(100))):
        assert t5(text, **fixed).input_ids == networks.t5_tokens(text)
        assert clip(text, **fixed).input_ids == networks.clip_tokens(text)


def test_the_configurations_are_those_of_the_libraries_classes(folder: Path) -> None:
    import torch
    from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel
    from transformers import AutoConfig

    with torch.device("meta"):
        transformer = FluxTransformer2DModel.from_config(
            FluxTransformer2DModel.load_config(folder / "transformer")
        )
        autoencoder = AutoencoderKL.from_config(AutoencoderKL.load_config(folder / "vae"))
    parameters = sum(value.numel() for model in (transformer, autoencoder) for value in model.parameters())
    assert 2 * parameters < 14_500_000  # bytes at half precision, of at most 15 MB with the encoders
    assert FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler").config.use_dynamic_shifting
    assert AutoConfig.from_pretrained(folder / "text_encoder_2").d_model == networks.TEXT_WIDTH
