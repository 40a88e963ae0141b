"""The named ways to sample: how many steps, how strongly guided, in which chunks. Pure data.

`exact` is what the model was published with; every other profile says what it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from stoker.models.talking_video.chunks import ChunkShape
from stoker.models.talking_video.schedule import Guidance

__all__ = ["PROFILES", "UNWANTED", "Profile"]

UNWANTED: Final = (
    "bright tones, overexposed, static, blurred details, subtitles, style, works, paintings, images, static,"
    " overall gray, worst quality, low quality, JPEG compression residue, ugly, incomplete, extra fingers,"
    " poorly drawn hands, poorly drawn faces, deformed, disfigured, misshapen limbs, fused fingers,"
    " still picture, messy background, three legs, many people in the background, walking backwards"
)
"""What the forwards without the prompt are told in its place: the words that InfiniteTalk was published
with."""


@dataclass(frozen=True, slots=True)
class Profile:
    """`shift` by the size's name. `lora`: a file of the weights' folder that is added to the network, and how
    strongly. `shrink`: the video is drawn so many times smaller and scaled up when it is written."""

    name: str
    steps: int
    guidance: Guidance
    shift: Mapping[str, float]
    shape: ChunkShape = field(default_factory=ChunkShape)
    lora: str | None = None
    lora_scale: float = 1.0
    shrink: int = 1
    about: str = ""


PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile(
                "exact",
                steps=40,
                guidance=Guidance(text=5.0, audio=4.0),
                shift=MappingProxyType({"480p": 7.0, "720p": 11.0}),
                about="as published: 40 steps of three forwards",
            ),
            Profile(
                "fast",
                steps=8,
                guidance=Guidance(text=1.0, audio=2.0),
                shift=MappingProxyType({"480p": 2.0, "720p": 2.0}),
                lora="distilled/lora.safetensors",
                about="a distilled network: 8 steps of two forwards; another video than `exact` makes",
            ),
            Profile(
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
