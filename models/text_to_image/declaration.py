"""The hosted image model as data: its input, its price, its handler. Imports no torch.

What `num_inference_steps`, `guidance` and `negative_prompt` do is each pipeline's own: see `ImageDefaults`.
So is what else a job may choose: see `choices`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from stoker.models import libraries
from stoker.models.declaration import ModelDeclaration
from stoker.models.interface import PipelineEntry
from stoker.models.registry import OF_THE_INTERFACE, PIPELINES, pipelines_of
from stoker.models.speed_ups import attention, profiles, warm_sizes
from stoker.models.text_to_image import choices

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
"""The imports of its workers' zygote: classes by name, since both libraries import them on first access."""

AT_ONCE: Final = "STOKER_IMAGES_AT_ONCE"


def jobs_at_once(value: str) -> int:
    """Returns how many jobs a worker may make in one batch; 1 if the setting is empty. Raises ValueError."""
    text = value.strip() or "1"
    if not text.isdecimal() or not 1 <= int(text) <= 8:
        raise ValueError(f"{AT_ONCE} is {text!r}; it must be a whole number from 1 to 8")
    return int(text)


PRICES: Final[tuple[dict[str, Any], ...]] = ({"metric": "output_pixels", "nano_usd": 20},)
"""0.02 USD for a million pixels."""

_NAMES: Final = pipelines_of("text-to-image")


_OWN: Final = MappingProxyType(
    {
        "num_inference_steps": ("steps", "Denoising steps."),
        "guidance": ("guidance", "How closely the image follows the prompt."),
    }
)
"""The inputs whose default is each pipeline's own: the field of `ImageDefaults`, and what the input means."""


def _others(field: str) -> str:
    """Lists the defaults that differ from the interface's, as in "4 for flux-1-schnell"."""
    entries = [PIPELINES[name] for name in _NAMES if not PIPELINES[name].made_up]
    found = {entry.name: getattr(entry.defaults, field) for entry in entries}
    usual = (None, getattr(OF_THE_INTERFACE, field))
    return ", ".join(f"{value} for {name}" for name, value in found.items() if value not in usual)


_SIDE: Final = {"type": "integer", "minimum": 256, "maximum": 1536, "multipleOf": 64, "default": 1024}

SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Text to image: input",
    "type": "object",
    "required": ["prompt"],
    "dependentRequired": {"strength": ["image"], "mask_image": ["image"]},
    "additionalProperties": False,
    "properties": {
        "prompt": {
            "type": "string",
            "minLength": 1,
            "pattern": r"\S",
            "description": "What the image shows: at least one character that is not white space.",
            "examples": [
                "a lighthouse in the snow",
                "a yellow duck in the sea",
                "three yellow stars at night",
            ],
        },
        "negative_prompt": {
            "type": "string",
            "description": (
                "What to keep out of it. For flux-1-dev it means twice the work, with a factor of 1.5;"
                " pipelines without guidance, as flux-1-schnell, do not use it."
            ),
        },
        "width": {**_SIDE, "description": "Pixels, divisible by 64."},
        "height": {**_SIDE, "description": "Pixels, divisible by 64."},
        "num_inference_steps": {
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
            "default": OF_THE_INTERFACE.steps,
            "description": (
                f"{_OWN['num_inference_steps'][1]} Other pipelines have their own default:"
                f" {_others('steps')}."
            ),
        },
        "guidance": {
            "type": "number",
            "minimum": 0.0,
            "maximum": 10.0,
            "default": OF_THE_INTERFACE.guidance,
            "description": (
                f"{_OWN['guidance'][1]} Other pipelines have their own default: {_others('guidance')}."
                " Pipelines without guidance do not use it."
            ),
        },
        "seed": {
            "type": "integer",
            "minimum": -1,
            "maximum": 2**63 - 1,
            "default": -1,
            "description": "The same seed and parameters give the same image; -1 draws one.",
        },
        "image_format": {
            "type": "string",
            "enum": ["png", "jpeg"],
            "default": "jpeg",
            "description": "Format of the image file.",
        },
        **choices.SCHEMA,
    },
}


def schema_of_any() -> dict[str, Any]:
    """Returns the schema of workers that choose their pipeline themselves: without the defaults that are
    each pipeline's own."""
    own = {name: {**SCHEMA["properties"][name]} for name in _OWN}
    for rule in own.values():
        del rule["default"]
    return {**SCHEMA, "properties": {**SCHEMA["properties"], **own}}


def schema_for(entry: PipelineEntry) -> dict[str, Any]:
    """Returns the schema with the inputs of one pipeline: its defaults, fewer choices, and others which may
    have other bounds."""
    shared = {name: rule for name, rule in SCHEMA["properties"].items() if name not in choices.SCHEMA}
    found = {**shared, **choices.schema_for(entry), **entry.inputs}
    return {**SCHEMA, "properties": {**found, **{name: _with_default(name, entry) for name in _OWN}}}


def _with_default(name: str, entry: PipelineEntry) -> dict[str, Any]:
    """Returns the rule of an input whose default is the pipeline's own, unless the rule is, too."""
    field, meaning = _OWN[name]
    default = getattr(entry.defaults, field)
    shown = {} if default is None else {"default": default}
    if name in entry.inputs:
        return {**shown, **entry.inputs[name]}
    rule = {key: value for key, value in SCHEMA["properties"][name].items() if key != "default"}
    description = f"{meaning} This pipeline does not use it." if default is None else meaning
    return {**rule, **shown, "description": description}


DECLARATION: Final = ModelDeclaration(
    id="text-to-image",
    name="Text to image",
    handler=HANDLER,
    schema=SCHEMA,
    prices=PRICES,
    aliases=("black-forest-labs-flux-1-dev", "black-forest-labs-flux-1-schnell"),
    pipelines=_NAMES,
    schema_for=schema_for,
    settings=MappingProxyType(
        {
            attention.ENVIRONMENT: attention.chosen,
            profiles.ENVIRONMENT: profiles.parse,
            AT_ONCE: jobs_at_once,
            warm_sizes.ENVIRONMENT: warm_sizes.parse,
        }
    ),
    concurrency=AT_ONCE,
    preload=PRELOAD,
    env=libraries.ENV,
)
