"""Small pipelines of each family with made-up weights, the same numbers on every machine.

`build(name, folder)` writes the folder that a family loads. The classes and their layout are those of the
real checkpoint; a number of a weight depends on its name only, so that no random generator is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stoker.models import made_weights
from stoker.models.text_to_image import tiny

WIDTH: Final = 16
CHANNELS: Final = 8


def build(name: str, folder: Path) -> None:
    tokenizer_files(folder / ".tokenizers")
    pipe = BUILDERS[name](folder / ".tokenizers")
    for part in pipe.components.values():
        if hasattr(part, "named_parameters"):
            fill(part, name)
    pipe.save_pretrained(folder)
    for path in sorted((folder / ".tokenizers").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (folder / ".tokenizers").rmdir()


def fill(module: Any, salt: str) -> None:
    """A weight is drawn so that a layer keeps the size of its input; a norm passes it on, a bias is zero."""
    import torch

    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.ndim > 1:
                scale = 2.0 ** -round(math.log2(math.prod(weight.shape[1:])) / 2 - 1)
                drawn = made_weights.draw(f"{salt}/{name}", *weight.shape, scale=scale)
                weight.copy_(torch.from_numpy(drawn.copy()))
            elif "bias" in name:
                weight.zero_()
            else:
                weight.fill_(1.0)


def tokenizer_files(folder: Path) -> None:
    files = tiny.files()
    for name, data in files.items():
        if name.startswith("tokenizer"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def clip_tokenizer(tokenizers: Path) -> Any:
    from transformers import CLIPTokenizer

    return CLIPTokenizer.from_pretrained(tokenizers / "tokenizer")


def clip(*, projection: bool) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    words = len(tiny.clip_vocabulary())
    config = CLIPTextConfig(
        vocab_size=words,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        projection_dim=WIDTH,
        bos_token_id=words - 2,
        eos_token_id=words - 1,
        pad_token_id=words - 1,
    )
    return (CLIPTextModelWithProjection if projection else CLIPTextModel)(config)


def autoencoder(latents: int, **more: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=[CHANNELS] * 4,
        down_block_types=["DownEncoderBlock2D"] * 4,
        up_block_types=["UpDecoderBlock2D"] * 4,
        layers_per_block=1,
        norm_num_groups=2,
        latent_channels=latents,
        mid_block_add_attention=False,
        sample_size=128,
        **more,
    )


def sdxl(tokenizers: Path) -> Any:
    import diffusers

    unet = diffusers.UNet2DConditionModel(
        sample_size=128,
        block_out_channels=(CHANNELS, 2 * CHANNELS),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(1, 2),
        norm_num_groups=2,
        use_linear_projection=True,
        cross_attention_dim=2 * WIDTH,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 1),
        projection_class_embeddings_input_dim=6 * 8 + WIDTH,
    )
    return diffusers.StableDiffusionXLPipeline(
        vae=autoencoder(4, scaling_factor=0.13025),
        text_encoder=clip(projection=False),
        text_encoder_2=clip(projection=True),
        tokenizer=clip_tokenizer(tokenizers),
        tokenizer_2=clip_tokenizer(tokenizers),
        unet=unet,
        scheduler=diffusers.EulerDiscreteScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            timestep_spacing="leading",
            steps_offset=1,
        ),
        add_watermarker=False,
    )


BUILDERS: Final[dict[str, Callable[[Path], Any]]] = {"sdxl": sdxl}
