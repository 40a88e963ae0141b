"""A job's input, checked, with its defaults filled in. Imports no torch.

The rules are those of `declaration.SCHEMA`.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.models.checked_input import checked
from stoker.models.talking_video.declaration import SCHEMA


@dataclass(frozen=True, slots=True)
class VideoRequest:
    """The checked input of a job. `image` and `audio` are URLs."""

    prompt: str
    image: str
    audio: str
    size: str
    face: str
    enable_safety_checker: bool

    @classmethod
    def parse(cls, value: object) -> VideoRequest:
        """Raises InvalidInput for the first thing that is wrong."""
        return cls(**checked(value, SCHEMA))
