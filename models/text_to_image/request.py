"""A job's input, checked, with its defaults filled in. Imports no torch.

The rules are those of `declaration.SCHEMA`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stoker.models.checked_input import checked
from stoker.models.interface import ImageDefaults, ImageParameters
from stoker.models.text_to_image.declaration import SCHEMA

MAX_CHARACTERS: Final = 32_768
"""The characters of a prompt that are used. The encoders read some hundred tokens, but their tokenizers would
first process the whole prompt, which takes twelve seconds for a megabyte."""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """Steps and guidance are None if the pipeline chooses them. `more`: inputs that only it takes."""

    prompt: str
    negative_prompt: str | None
    width: int
    height: int
    num_inference_steps: int | None
    guidance: float | None
    seed: int
    image_format: str
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: object, schema: Mapping[str, Any] = SCHEMA) -> ImageRequest:
        """Raises InvalidInput for the first thing that is wrong. `schema`: with inputs of a pipeline's own,
        which become `more`."""
        found = checked(value, schema)
        more = {name: found.pop(name) for name in schema["properties"] if name not in SCHEMA["properties"]}
        return cls(**found, more=more)

    @property
    def excludes(self) -> str | None:
        """The negative prompt; None if it is missing or blank."""
        if self.negative_prompt is None or not self.negative_prompt.strip():
            return None
        return self.negative_prompt

    def parameters(self, defaults: ImageDefaults, seed: int) -> ImageParameters:
        """The image to make, with what the pipeline chooses itself."""
        guidance = defaults.guidance
        if guidance is not None and self.guidance is not None:
            guidance = self.guidance
        excludes = self.excludes if defaults.negative_prompt else None
        return ImageParameters(
            prompt=self.prompt[:MAX_CHARACTERS],
            width=self.width,
            height=self.height,
            steps=defaults.steps if self.num_inference_steps is None else self.num_inference_steps,
            seed=seed,
            guidance=guidance,
            negative_prompt=None if excludes is None else excludes[:MAX_CHARACTERS],
            factor=None if excludes is None else defaults.factor,
            more=self.more,
        )
