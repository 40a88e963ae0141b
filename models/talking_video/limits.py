"""The limits on the size of an image and the length of audio. Pure.

STOKER_VIDEO_LIMITS in the workers' environment changes some of them: `audio_most_s=60 image_bytes=5000000`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Final

ENVIRONMENT: Final = "STOKER_VIDEO_LIMITS"


FRAME: Final = 0.04
"""The length of one frame of the video in seconds; shorter audio makes no frame."""


@dataclass(frozen=True, slots=True)
class VideoLimits:
    """Limits of a job's inputs: audio in seconds, files in bytes, images in pixels: `image_least` on each
    side, `image_most` in total."""

    audio_least_s: float = 0.2
    audio_most_s: float = 600.0
    audio_bytes: int = 50_000_000
    image_least: int = 64
    image_most: int = 25_000_000
    image_bytes: int = 30_000_000

    @classmethod
    def parse(cls, text: str) -> VideoLimits:
        """Raises ValueError for an unknown name or an invalid number."""
        known = {name: type(value) for name, value in asdict(cls()).items()}
        changed: dict[str, float] = {}
        for setting in text.split():
            name, _, number = setting.partition("=")
            if name not in known:
                raise ValueError(f"{ENVIRONMENT} has no limit {name!r}; its limits are {', '.join(known)}")
            try:
                changed[name] = known[name](number)
            except ValueError:
                changed[name] = math.nan
            if not 0 < changed[name] < math.inf:
                raise ValueError(f"{ENVIRONMENT} has {setting!r}; a number above 0 must follow the =")
        if changed.get("audio_least_s", FRAME) < FRAME:
            raise ValueError(
                f"{ENVIRONMENT} allows less than {FRAME} s of sound, which makes no frame of a video"
            )
        return replace(cls(), **changed)  # type: ignore[arg-type]  # each of its field's type


DEFAULT: Final = VideoLimits()
