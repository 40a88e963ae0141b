"""The named settings for sampling: the number of steps, the guidance, and the shape of chunks. Pure data.

`published` has those of the model's authors; each other says what it changes. They belong to a pipeline;
speed-ups, which may change with the machine, are in a profile (`stoker.models.speed_ups`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from stoker.models.talking_video.sampling.chunks import ChunkShape
from stoker.models.talking_video.sampling.schedule import Guidance

UNWANTED: Final = (
    "bright tones, overexposed, static, blurred details, subtitles, style, works, paintings, images, static,"
    " overall gray, worst quality, low quality, JPEG compression residue, ugly, incomplete, extra fingers,"
    " poorly drawn hands, poorly drawn faces, deformed, disfigured, misshapen limbs, fused fingers,"
    " still picture, messy background, three legs, many people in the background, walking backwards"
)
"""The negative prompt of the forwards without the prompt, as InfiniteTalk was published."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Settings of sampling. `shift`: by the name of the size. `lora`: a file in the weights' folder that is
    added to the network, with the factor `lora_scale`. `shrink`: the video is generated so many times smaller
    and scaled up when it is written."""

    name: str
    steps: int
    guidance: Guidance
    shift: Mapping[str, float]
    shape: ChunkShape = field(default_factory=ChunkShape)
    lora: str | None = None
    lora_scale: float = 1.0
    shrink: int = 1
    about: str = ""


SETTINGS: Final[Mapping[str, SamplingSettings]] = MappingProxyType(
    {
        settings.name: settings
        for settings in (
            SamplingSettings(
                "published",
                steps=40,
                guidance=Guidance(text=5.0, audio=4.0),
                shift=MappingProxyType({"480p": 7.0, "720p": 11.0}),
                about="as published: 40 steps of three forwards",
            ),
            SamplingSettings(
                "distilled",
                steps=8,
                guidance=Guidance(text=1.0, audio=2.0),
                shift=MappingProxyType({"480p": 2.0, "720p": 2.0}),
                lora="distilled/lora.safetensors",
                about="a distilled network: 8 steps of two forwards; another video than `published` makes",
            ),
            SamplingSettings(
                "tiny",
                steps=2,
                guidance=Guidance(text=2.0, audio=2.0),
                shift=MappingProxyType({"480p": 7.0, "720p": 11.0}),
                shape=ChunkShape(frames=17, motion=5, whole_tail=False),
                shrink=4,
                about="for the small made-up weights, on a CPU",
            ),
        )
    }
)
