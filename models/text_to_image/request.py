"""A job's input, checked, with its defaults filled in. Imports no torch.

The rules are those of `declaration.SCHEMA`.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.models.checked_input import InvalidInput, checked
from stoker.models.text_to_image.declaration import SCHEMA

__all__ = ["ImageRequest", "InvalidInput"]


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """Steps and guidance are None if the pipeline chooses them (see `recipes`)."""

    prompt: str
    negative_prompt: str | None
    width: int
    height: int
    num_inference_steps: int | None
    guidance: float | None
    seed: int
    image_format: str

    @classmethod
    def parse(cls, value: object) -> ImageRequest:
        """Raises InvalidInput for the first thing that is wrong."""
        return cls(**checked(value, SCHEMA))

    @property
    def excludes(self) -> str | None:
        """The negative prompt; None if it is missing or blank."""
        if self.negative_prompt is None or not self.negative_prompt.strip():
            return None
        return self.negative_prompt
