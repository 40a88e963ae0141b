"""The hosted video model as data: its input, its price, its handler. Imports no torch."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from stoker.models import libraries
from stoker.models.declaration import ModelDeclaration
from stoker.models.registry import pipelines_of
from stoker.models.speed_ups import attention, profiles, warm_sizes
from stoker.models.talking_video.limits import ENVIRONMENT, VideoLimits

HANDLER: Final = "stoker.models.talking_video.handler:TalkingVideo"

PRELOAD: Final = (
    "PIL.Image",
    "accelerate",
    "av",
    "diffusers.AutoencoderKLWan",
    "diffusers.WanTransformer3DModel",
    "ftfy",
    "numpy",
    "safetensors.torch",
    "soundfile",
    "torch",
    "transformers.AutoTokenizer",
    "transformers.CLIPVisionModel",
    "transformers.UMT5EncoderModel",
    "transformers.Wav2Vec2Model",
)
"""The imports of its workers' zygote: classes by name, since the libraries import them on first access."""

METRICS: Final = MappingProxyType({"480p": "videos_480p", "720p": "videos_720p"})
"""The metric that the handler measures once for each video, by its size."""

PRICES: Final[tuple[dict[str, Any], ...]] = (
    {"metric": METRICS["480p"], "nano_usd": 250_000_000},
    {"metric": METRICS["720p"], "nano_usd": 500_000_000},
)
"""0.25 and 0.50 USD a video, however long."""

SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Talking video: input",
    "type": "object",
    "required": ["prompt", "image", "audio", "size"],
    "additionalProperties": False,
    "properties": {
        "prompt": {
            "type": "string",
            "minLength": 1,
            "pattern": r"\S",
            "description": "What the video shows: at least one character that is not white space.",
        },
        "image": {
            "type": "string",
            "format": "uri",
            "description": "URL of the image to animate: png, jpeg or webp.",
        },
        "audio": {
            "type": "string",
            "format": "uri",
            "description": (
                "URL of the audio: wav, mp3, flac, ogg, m4a, aac, aiff, webm or mkv, 0.2 s to 10 minutes."
            ),
        },
        "size": {
            "type": "string",
            "enum": ["480p", "720p"],
            "description": "About 627 or 960 pixels squared, in the shape nearest to the image's.",
        },
        "face": {
            "type": "string",
            "enum": ["find", "assume"],
            "default": "find",
            "description": (
                "Of a pipeline that needs a face, as talk-mini: refuse an image without one, or assume one"
                " around the line that a drawing has for a mouth, else in the middle."
            ),
        },
        "enable_safety_checker": {
            "type": "boolean",
            "default": True,
            "description": "Whether the image and the video are checked before any of the video is sent.",
        },
    },
}

DECLARATION: Final = ModelDeclaration(
    id="talking-video",
    name="Talking video",
    handler=HANDLER,
    schema=SCHEMA,
    prices=PRICES,
    aliases=("infinitetalk",),
    pipelines=pipelines_of("talking-video"),
    more_weights=MappingProxyType({"STOKER_SAFETY_CHECKER": "safety-tiny"}),
    settings=MappingProxyType(
        {
            ENVIRONMENT: VideoLimits.parse,
            attention.ENVIRONMENT: attention.chosen,
            profiles.ENVIRONMENT: profiles.parse,
            warm_sizes.ENVIRONMENT: warm_sizes.parse,
        }
    ),
    preload=PRELOAD,
    env=libraries.ENV,
)
