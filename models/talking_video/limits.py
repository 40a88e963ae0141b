"""How large a picture and how long a voice may be. Pure.

STOKER_VIDEO_LIMITS in the workers' environment changes some of them: `audio_most_s=60 image_bytes=5000000`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Final

__all__ = ["DEFAULT", "ENVIRONMENT", "Limits"]

ENVIRONMENT: Final = "STOKER_VIDEO_LIMITS"


FRAME: Final = 0.04
"""Seconds: a shorter voice has none."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, bytes of a file, and pixels: `image_least` on each side, `image_most` in all."""

    audio_least_s: float = 0.2
    audio_most_s: float = 600.0
    audio_bytes: int = 50_000_000
    image_least: int = 64
    image_most: int = 25_000_000
    image_bytes: int = 30_000_000

    @classmethod
    def parse(cls, text: str) -> Limits:
        """Raises ValueError for a name or a number that is none."""
        known = {name: type(value) for name, value in asdict(cls()).items()}
        changed: dict[str, float] = {}
        for word in text.split():
            name, _, number = word.partition("=")
            if name not in known:
                raise ValueError(f"{ENVIRONMENT} knows no {name!r}; it knows {', '.join(known)}")
            try:
                changed[name] = known[name](number)
            except ValueError:
                changed[name] = math.nan
            if not 0 < changed[name] < math.inf:
                raise ValueError(f"{ENVIRONMENT} says {word!r}; a number above 0 must follow the =")
        if changed.get("audio_least_s", FRAME) < FRAME:
            raise ValueError(f"{ENVIRONMENT} allows less than {FRAME} s of sound: no frame of a video")
        return replace(cls(), **changed)  # type: ignore[arg-type]  # each of its field's type


DEFAULT: Final = Limits()
