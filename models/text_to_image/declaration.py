"""The hosted image model as data: its input, its price, its handler. Imports no torch.

What `guidance` and `negative_prompt` do with FLUX:

- FLUX.1-dev was distilled to take guidance as an input (embedded guidance): one forward a step, and
  `guidance` goes there. FLUX.1-schnell has no such input: `guidance` changes nothing.
- A `negative_prompt` with any letters in it turns true classifier-free guidance on: two forwards a step,
  with and without, and `guidance` is the factor between them (at most 1.0 means: no effect, and no second
  forward). The embedded guidance then stands at 1.0, so that the two do not multiply.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from stoker.models.declaration import ModelDeclaration

__all__ = ["DECLARATION", "ENV", "HANDLER", "PRELOAD", "PRICES", "SCHEMA"]

HANDLER: Final = "stoker.models.text_to_image.handler:TextToImage"

PRELOAD: Final = (
    "PIL.Image",
    "accelerate",
    "diffusers.AutoencoderKL",
    "diffusers.FlowMatchEulerDiscreteScheduler",
    "diffusers.FluxPipeline",
    "diffusers.FluxTransformer2DModel",
    "numpy",
    "safetensors.torch",
    "torch",
    "transformers.CLIPTextModel",
    "transformers.CLIPTokenizer",
    "transformers.T5EncoderModel",
    "transformers.T5TokenizerFast",
)
"""What its workers' template imports: classes by name, for both libraries import them only when asked."""

ENV: Final = MappingProxyType({"HF_HUB_OFFLINE": "1"})
"""The hub's library reads it when it is imported."""

PRICES: Final[tuple[dict[str, Any], ...]] = ({"metric": "output_pixels", "nano_usd": 20},)
"""0.02 USD for a million pixels."""

_SIDE: Final = {"type": "integer", "minimum": 256, "maximum": 1536, "multipleOf": 64, "default": 1024}

SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Text to image: input",
    "type": "object",
    "required": ["prompt"],
    "additionalProperties": False,
    "properties": {
        "prompt": {
            "type": "string",
            "minLength": 1,
            "pattern": r"\S",
            "description": "What the picture shows: at least one letter that is not white space.",
        },
        "negative_prompt": {
            "type": "string",
            "description": "What to keep out of it. Turns true classifier-free guidance on: twice the work.",
        },
        "width": {**_SIDE, "description": "Pixels, divisible by 64."},
        "height": {**_SIDE, "description": "Pixels, divisible by 64."},
        "num_inference_steps": {
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
            "default": 28,
            "description": "Denoising steps.",
        },
        "guidance": {
            "type": "number",
            "minimum": 0.0,
            "maximum": 10.0,
            "default": 7.5,
            "description": "How closely the picture follows the prompt.",
        },
        "seed": {
            "type": "integer",
            "minimum": -1,
            "maximum": 2**63 - 1,
            "default": -1,
            "description": "The same seed and parameters give the same picture; -1 draws one.",
        },
        "image_format": {
            "type": "string",
            "enum": ["png", "jpeg"],
            "default": "jpeg",
            "description": "Format of the picture's file.",
        },
    },
}

DECLARATION: Final = ModelDeclaration(
    id="text-to-image",
    name="Text to image",
    handler=HANDLER,
    schema=SCHEMA,
    prices=PRICES,
    default_pipeline="flux-tiny",
    gpu_pipeline="flux-1-dev",
    preload=PRELOAD,
    env=ENV,
)
