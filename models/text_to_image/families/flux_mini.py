"""FLUX.1 as `flux-mini`: the same classes and the same code, for prompts in the words that it was trained on.

    prompt ──> known words (`mini.words`) ──> a sentence that names everything (`mini.completion`)
           ──> a square of 512 pixels, or a picture half as wide or as high again
           ──> the requested size (`mini.enlargement`)

The answer says what was read otherwise. The network was trained with random guidance, so that guidance
changes nothing, and always gets the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stoker.models.interface import ImageParameters, Step
from stoker.models.speed_ups import profiles
from stoker.models.text_to_image.families.flux import Flux
from stoker.models.text_to_image.mini import enlargement, words
from stoker.models.text_to_image.mini.completion import complete, left_out
from stoker.models.text_to_image.mini.networks import TEXT_TOKENS
from stoker.models.text_to_image.mini.words import singular
from stoker.models.weights import Reading

if TYPE_CHECKING:
    import torch
    from PIL import Image

GUIDANCE: Final = 3.5


class FluxMini(Flux):
    def __init__(
        self, folder: Path, device: str, profile: str = profiles.EXACT, reading: Reading | None = None
    ) -> None:
        """Loads the network for as many tokens as it was trained with: with another number its pictures
        fall to pieces."""
        super().__init__(folder, device, text_tokens=TEXT_TOKENS, profile=profile, reading=reading)

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        known = replace(parameters, guidance=GUIDANCE, negative_prompt=None)
        text = complete(words.read(parameters.prompt).text, parameters.seed)
        return super().arguments(known) | {"prompt": text}

    def notes(self, parameters: ImageParameters) -> dict[str, Any]:
        """Returns which words of the prompt were read as another, and which are not drawn."""
        reading = words.read(parameters.prompt)
        others = left_out(reading.text)
        if not others:
            return reading.notes
        as_written = {singular(found): word for word, found in reading.instead.items()}
        missing = [*reading.left_out, *(as_written.get(name, name) for name in others)]
        instead = {word: found for word, found in reading.instead.items() if word not in missing}
        changed = {"drawn_instead": instead} if instead else {}
        return {**changed, "not_drawn": missing, "notes": ["A picture shows one kind of object."]}

    def generate_batch(
        self, batch: Sequence[ImageParameters], on_step: Callable[[int, Step], None]
    ) -> list[Image.Image]:
        width, height = batch[0].width, batch[0].height

        def with_sides(index: int, step: Step) -> None:
            estimate = functools.partial(_with_sides, step, width / height)
            on_step(index, replace(step, estimate=estimate))

        images = super().generate_batch([_as_drawn(one) for one in batch], with_sides)
        return [enlargement.enlarged(image, width, height) for image in images]


def _as_drawn(parameters: ImageParameters) -> ImageParameters:
    """Returns the same picture in the size that the network draws. Of a caller's image and mask it is the
    middle."""
    size = enlargement.nearest(parameters.width, parameters.height)
    image = parameters.image and enlargement.middle(parameters.image, size)
    mask = parameters.mask and enlargement.middle(parameters.mask, size)
    return replace(parameters, width=size[0], height=size[1], image=image, mask=mask)


def _with_sides(step: Step, ratio: float) -> torch.Tensor:
    """Returns the step's estimate for a picture whose width is `ratio` times its height."""
    return enlargement.with_sides(step.estimate(), ratio)
