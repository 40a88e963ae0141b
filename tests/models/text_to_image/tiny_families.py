"""Small pipelines of each family with made-up weights, the same numbers on every machine.

`build(name, folder)` writes the folder that a family loads, `build_lora` that of a LoRA for it. The classes
and their layout are those of the real checkpoint; a number of a weight depends on its name only, so that no
random generator is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stoker.models import made_weights
from stoker.models.text_to_image import tiny
from tests.models.text_to_image.published_schedulers import DIFFUSION

WIDTH: Final = 16
CHANNELS: Final = 4


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


def build_lora(network: Any, prefix: str, name: str, rank: int, folder: Path) -> None:
    """A LoRA for the queries, keys and values of a network, whose keys begin with `prefix`."""
    import torch

    found = {}
    for layer_name, layer in network.named_modules():
        if isinstance(layer, torch.nn.Linear) and layer_name.endswith(("to_q", "to_k", "to_v")):
            for part, shape in (("A", (rank, layer.in_features)), ("B", (layer.out_features, rank))):
                key = f"{prefix}.{layer_name}.lora_{part}.weight"
                found[key] = made_weights.draw(f"{name}/{key}", *shape, scale=0.5)
    made_weights.write_files(folder, {"lora.safetensors": made_weights.safetensors_bytes(found)})


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
        scheduler=diffusers.EulerDiscreteScheduler.from_config(DIFFUSION["sdxl"]),
        add_watermarker=False,
    )


def t5() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(
        T5Config(
            vocab_size=len(tiny.t5_vocabulary()),
            d_model=3 * WIDTH,
            d_kv=WIDTH // 2,
            d_ff=2 * WIDTH,
            num_heads=2,
            num_layers=1,
            feed_forward_proj="gated-gelu",
            pad_token_id=0,
            eos_token_id=1,
        )
    )


def flow(**more: Any) -> Any:
    import diffusers

    return diffusers.FlowMatchEulerDiscreteScheduler(**more)


def sd3(tokenizers: Path) -> Any:
    import diffusers
    from transformers import T5TokenizerFast

    transformer = diffusers.SD3Transformer2DModel(
        sample_size=192,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=3 * WIDTH,
        caption_projection_dim=WIDTH,
        pooled_projection_dim=2 * WIDTH,
        pos_embed_max_size=96,
        qk_norm="rms_norm",
    )
    return diffusers.StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=flow(shift=3.0),
        vae=autoencoder(16, scaling_factor=1.5305, shift_factor=0.0609, **NO_QUANT),
        text_encoder=clip(projection=True),
        tokenizer=clip_tokenizer(tokenizers),
        text_encoder_2=clip(projection=True),
        tokenizer_2=clip_tokenizer(tokenizers),
        text_encoder_3=t5(),
        tokenizer_3=T5TokenizerFast.from_pretrained(tokenizers / "tokenizer_2"),
    )


NO_QUANT: Final = {"use_quant_conv": False, "use_post_quant_conv": False}
TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n"
)


def qwen_tokenizer() -> Any:
    """A token for each byte, as Qwen's has before it merges any."""
    from transformers import Qwen2Tokenizer

    words = {word: number for number, word in enumerate(tiny.byte_characters())}
    found = Qwen2Tokenizer(vocab=words, merges=[], extra_special_tokens=["<|im_start|>", "<|im_end|>"])
    found.chat_template = TEMPLATE
    return found


def qwen3(layers: int) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(qwen_tokenizer()),
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            tie_word_embeddings=True,
        )
    )


def z_image(tokenizers: Path) -> Any:
    import diffusers

    transformer = diffusers.ZImageTransformer2DModel(
        dim=2 * WIDTH,
        n_layers=1,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=WIDTH,
        axes_dims=[4, 6, 6],
        axes_lens=[1536, 512, 512],
    )
    return diffusers.ZImagePipeline(
        scheduler=flow(shift=3.0),
        vae=autoencoder(16, scaling_factor=0.3611, shift_factor=0.1159, **NO_QUANT),
        text_encoder=qwen3(2),
        tokenizer=qwen_tokenizer(),
        transformer=transformer,
    )


def flux2_klein(tokenizers: Path) -> Any:
    import diffusers

    transformer = diffusers.Flux2Transformer2DModel(
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=3 * WIDTH,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=False,
    )
    vae = diffusers.AutoencoderKLFlux2(
        block_out_channels=(CHANNELS,) * 4,
        layers_per_block=1,
        norm_num_groups=2,
        mid_block_add_attention=False,
    )
    return diffusers.Flux2KleinPipeline(
        scheduler=flow(shift=3.0, use_dynamic_shifting=True),
        vae=vae,
        text_encoder=qwen3(28),
        tokenizer=qwen_tokenizer(),
        transformer=transformer,
        is_distilled=True,
    )


def qwen_image(tokenizers: Path) -> Any:
    import diffusers
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    transformer = diffusers.QwenImageTransformer2DModel(
        num_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=WIDTH,
        axes_dims_rope=(4, 6, 6),
    )
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]}
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(qwen_tokenizer()),
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_parameters": rope,
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "out_hidden_size": WIDTH,
        },
    )
    return diffusers.QwenImagePipeline(
        scheduler=flow(shift=1.0, use_dynamic_shifting=True),
        vae=diffusers.AutoencoderKLQwenImage(base_dim=2, num_res_blocks=1),
        text_encoder=Qwen2_5_VLForConditionalGeneration(config),
        tokenizer=qwen_tokenizer(),
        transformer=transformer,
    )


BUILDERS: Final[dict[str, Callable[[Path], Any]]] = {
    "flux-2-klein-4b": flux2_klein,
    "qwen-image": qwen_image,
    "sd-3.5-large": sd3,
    "sdxl": sdxl,
    "z-image-turbo": z_image,
}
