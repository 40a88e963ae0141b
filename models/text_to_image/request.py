"""A job's input, checked, with its defaults filled in. Imports no torch.

The rules are those of `declaration.SCHEMA`, and here, which of its inputs fit together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from stoker.models.checked_input import InvalidInput, checked
from stoker.models.interface import ImageChoices, ImageDefaults, ImageParameters, Lora
from stoker.models.text_to_image.choices import MASKED_STRENGTH, STRENGTH
from stoker.models.text_to_image.declaration import SCHEMA

if TYPE_CHECKING:
    from PIL import Image

MAX_CHARACTERS: Final = 32_768
"""The characters of a prompt that are used. The encoders read some hundred tokens, but their tokenizers would
first process the whole prompt, which takes twelve seconds for a megabyte."""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """The checked input of a job. Steps, guidance and scheduler are None if the pipeline chooses them.
    `image`, `mask_image` and `images` are URLs. `more`: inputs that only this pipeline takes."""

    prompt: str
    negative_prompt: str | None
    width: int
    height: int
    num_inference_steps: int | None
    guidance: float | None
    seed: int
    image_format: str
    num_images: int = 1
    strict: bool = False
    scheduler: str | None = None
    loras: tuple[Lora, ...] = ()
    image: str | None = None
    strength: float = STRENGTH
    mask_image: str | None = None
    images: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(
        cls, value: object, schema: Mapping[str, Any] = SCHEMA, choices: ImageChoices | None = None
    ) -> ImageRequest:
        """Raises InvalidInput for the first thing that is wrong. `schema` and `choices`: of the pipeline, if
        it is known; inputs of its own become `more`."""
        found = checked(value, schema)
        _require_fit(found, choices)
        more = {name: found.pop(name) for name in schema["properties"] if name not in SCHEMA["properties"]}
        found["loras"] = tuple(Lora(**lora) for lora in found.get("loras") or ())
        found["images"] = tuple(found.get("images") or ())
        if found.get("strength") is None:
            found["strength"] = STRENGTH if found.get("mask_image") is None else MASKED_STRENGTH
        return cls(**found, more=more)

    @property
    def excludes(self) -> str | None:
        """The negative prompt; None if it is missing or blank."""
        if self.negative_prompt is None or not self.negative_prompt.strip():
            return None
        return self.negative_prompt

    def without_effect(self, defaults: ImageDefaults) -> list[str]:
        """Returns the inputs of this request that a pipeline with these defaults takes no notice of. Where
        guidance is the factor of the negative prompt, there is none up to 1."""
        guidance = self._guidance(defaults)
        unguided = defaults.factor is None and guidance is not None and guidance <= 1
        excludes = defaults.negative_prompt and not unguided
        ignored = {
            "guidance": self.guidance is not None and defaults.guidance is None,
            "negative_prompt": self.excludes is not None and not excludes,
        }
        return [name for name, is_ignored in ignored.items() if is_ignored]

    def _guidance(self, defaults: ImageDefaults) -> float | None:
        if defaults.guidance is None or self.guidance is None:
            return defaults.guidance
        return self.guidance

    def parameters(
        self,
        defaults: ImageDefaults,
        seed: int,
        image: Image.Image | None = None,
        mask: Image.Image | None = None,
        references: tuple[Image.Image, ...] = (),
    ) -> ImageParameters:
        """Returns the image to make, with what the pipeline chooses itself. `image`: the image that sampling
        starts from; `mask`: the part of it that is made anew; `references`: the images that it looks at."""
        excludes = self.excludes if defaults.negative_prompt else None
        return ImageParameters(
            prompt=self.prompt[:MAX_CHARACTERS],
            width=self.width,
            height=self.height,
            steps=defaults.steps if self.num_inference_steps is None else self.num_inference_steps,
            seed=seed,
            guidance=self._guidance(defaults),
            negative_prompt=None if excludes is None else excludes[:MAX_CHARACTERS],
            factor=None if excludes is None else defaults.factor,
            scheduler=self.scheduler,
            loras=self.loras,
            image=image,
            strength=1.0 if image is None else self.strength,
            mask=mask,
            references=references,
            more=self.more,
        )


def _require_fit(found: Mapping[str, Any], choices: ImageChoices | None) -> None:
    """Raises InvalidInput for inputs of which each is allowed, but not together."""
    names = [lora["name"] for lora in found.get("loras") or ()]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidInput(f'loras: "{twice}" is named twice; each may be named once')
    image, scheduler = found.get("image"), found.get("scheduler")
    if image is None and found.get("strength") is not None:
        raise InvalidInput(f"strength: {found['strength']} is not allowed without an image to start from")
    if image is None and found.get("mask_image") is not None:
        raise InvalidInput("mask_image: a mask is not allowed without an image to start from")
    if image is not None and found.get("images"):
        raise InvalidInput("images: images to look at are not allowed with an image to start from")
    if image is not None and scheduler is not None and choices and scheduler not in choices.from_image:
        allowed = " or ".join(choices.from_image)
        raise InvalidInput(f'scheduler: "{scheduler}" cannot start from an image; it must be {allowed}')
