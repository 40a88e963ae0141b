"""Choices of a job besides the inputs of the hosted model: their schema, and those that a pipeline has.

The hosted model's schema has all choices; that of a pipeline only those which it takes. Imports no torch.
"""

from __future__ import annotations

from typing import Any, Final

from stoker.models.interface import PipelineEntry
from stoker.models.text_to_image.families import schedulers

IMAGES_MOST: Final = 10
REFERENCES_MOST: Final = 4
LORAS_MOST: Final = 4
STRENGTH: Final = 0.6
MASKED_STRENGTH: Final = 1.0
"""Of an image to start from, and of the part of one, if the job names none."""

_LORA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "scale": {"type": "number", "minimum": -2.0, "maximum": 2.0, "default": 1.0},
    },
}

SCHEMA: Final[dict[str, dict[str, Any]]] = {
    "num_images": {
        "type": "integer",
        "minimum": 1,
        "maximum": IMAGES_MOST,
        "default": 1,
        "description": "How many images, each with the seed after the one before. Each costs its pixels.",
    },
    "scheduler": {
        "type": "string",
        "enum": list(schedulers.NAMES),
        "description": (
            "How the steps are made. Left out, the pipeline's own. Each pipeline has some of these."
        ),
    },
    "loras": {
        "type": "array",
        "maxItems": LORAS_MOST,
        "items": _LORA,
        "description": "LoRAs of the pipeline by name, each with a scale from -2 to 2 (1 if it is left out).",
    },
    "image": {
        "type": "string",
        "format": "uri",
        "description": (
            "URL of an image to start from: png, jpeg or webp, cropped to the width and the height. Not all"
            " pipelines can."
        ),
    },
    "strength": {
        "type": "number",
        "minimum": 0.01,
        "maximum": 1.0,
        "description": (
            f"How much of `image` is made anew, and the share of the steps that are made; {STRENGTH} if it is"
            f" left out, and {MASKED_STRENGTH:g} with a mask."
        ),
    },
    "mask_image": {
        "type": "string",
        "format": "uri",
        "description": (
            "URL of a mask for `image`: what is transparent in it is made anew or, if nothing is, what is"
            " white; the rest is kept. Not all pipelines can."
        ),
    },
    "images": {
        "type": "array",
        "maxItems": REFERENCES_MOST,
        "items": {"type": "string", "format": "uri"},
        "description": (
            "URLs of images that the prompt is about, as in `the cup of image 1 on the table of image 2`:"
            " png, jpeg or webp. Not all pipelines can."
        ),
    },
    "strict": {
        "type": "boolean",
        "default": False,
        "description": "Make the image alone, not in a batch: the same seed then gives the same bytes.",
    },
}


def schema_for(entry: PipelineEntry) -> dict[str, dict[str, Any]]:
    """Returns the choices that one pipeline has."""
    found, choices = {name: SCHEMA[name] for name in ("num_images", "strict")}, entry.choices
    if choices.schedulers:
        found["scheduler"] = {**SCHEMA["scheduler"], "enum": list(choices.schedulers)}
    if entry.loras:
        name = {"type": "string", "enum": list(entry.loras)}
        items = {**_LORA, "properties": {**_LORA["properties"], "name": name}}
        most = min(LORAS_MOST, len(entry.loras))
        found["loras"] = {**SCHEMA["loras"], "items": items, "maxItems": most}
    if choices.from_image:
        found |= {name: SCHEMA[name] for name in ("image", "strength")}
    if choices.masks:
        found["mask_image"] = SCHEMA["mask_image"]
    if choices.references:
        found["images"] = {**SCHEMA["images"], "maxItems": min(REFERENCES_MOST, choices.references)}
    return found
