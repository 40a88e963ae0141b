"""FLUX.1 as `flux-mini`: the same classes and the same code, for prompts in the words that it was trained on.

    prompt ──> known words (`mini.words`) ──> a sentence that names everything (`mini.completion`)
           ──> a square of 512 pixels, or a picture half as wide or as high again
           ──> the requested size (`mini.enlargement`)

Of two kinds of objects each has a half of the picture, and a sentence of its own (`mini.two_kinds`).

The answer says what was read otherwise. The network was trained with random guidance, so that guidance
changes nothing, and always gets the same.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stoker.models.interface import ImageParameters, OnStep, Step
from stoker.models.speed_ups import profiles
from stoker.models.text_to_image import mini
from stoker.models.text_to_image.families.flux import Flux
from stoker.models.text_to_image.mini import enlargement, two_kinds, words
from stoker.models.text_to_image.mini.completion import Completed, complete, left_out
from stoker.models.text_to_image.mini.networks import TEXT_TOKENS
from stoker.models.text_to_image.mini.words import singular
from stoker.models.weights import Reading

if TYPE_CHECKING:
    import torch
    from PIL import Image

GUIDANCE: Final = 3.5
PLACE: Final = "place"
"""Where the first of two kinds of objects is drawn, among what only this pipeline takes."""


class FluxMini(Flux):
    preview_matrix = Path(mini.__file__).parent / "trained" / "preview.json"

    def __init__(
        self, folder: Path, device: str, profile: str = profiles.EXACT, reading: Reading | None = None
    ) -> None:
        """Loads the network for as many tokens as it was trained with: with another number its pictures
        fall to pieces."""
        super().__init__(folder, device, text_tokens=TEXT_TOKENS, profile=profile, reading=reading)

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        return super().arguments(replace(parameters, guidance=GUIDANCE, negative_prompt=None))

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
        return {**changed, "not_drawn": missing, "notes": ["A picture shows two kinds of objects."]}

    def generate_batch(
        self, batch: Sequence[ImageParameters], on_step: Callable[[int, Step], None]
    ) -> list[Image.Image]:
        width, height = batch[0].width, batch[0].height

        def with_sides(index: int, step: Step) -> None:
            estimate = functools.partial(_with_sides, step, width / height)
            on_step(index, replace(step, estimate=estimate))

        completed = [complete(words.read(one.prompt).text, one.seed) for one in batch]
        pictures: dict[int, Image.Image] = {}
        if alone := [index for index, one in enumerate(completed) if not one.place]:
            drawn = [_as_drawn(batch[index], completed[index].sentences[0]) for index in alone]
            made = super().generate_batch(drawn, lambda index, step: with_sides(alone[index], step))
            pictures |= zip(alone, made, strict=True)
        for index, one in enumerate(completed):
            if one.place:
                pictures[index] = self._of_two_kinds(batch[index], one, functools.partial(with_sides, index))
        return [enlargement.enlarged(pictures[index], width, height) for index in range(len(batch))]

    def _of_two_kinds(
        self, parameters: ImageParameters, completed: Completed, on_step: OnStep
    ) -> Image.Image:
        both = [_as_drawn(parameters, sentence, completed.place) for sentence in completed.sentences]
        made = super().generate_batch(both, lambda index, step: None if index else on_step(step))
        return made[0]

    @contextlib.contextmanager
    def _runner(self, parameters: ImageParameters) -> Iterator[Any]:
        with super()._runner(parameters) as pipe:
            if place := parameters.more.get(PLACE):
                side = 2 * pipe.vae_scale_factor
                is_first = two_kinds.of_first(place, parameters.height // side, parameters.width // side)
                with two_kinds.merged(pipe.scheduler, is_first):
                    yield pipe
            else:
                yield pipe


def _as_drawn(parameters: ImageParameters, sentence: str, place: str = "") -> ImageParameters:
    """Returns the same picture in the size that the network draws, by this sentence. Of a caller's image and
    mask it is the middle. `place`: of the first of two kinds of objects."""
    size = enlargement.nearest(parameters.width, parameters.height)
    image = parameters.image and enlargement.middle(parameters.image, size)
    mask = parameters.mask and enlargement.middle(parameters.mask, size)
    drawn = replace(parameters, prompt=sentence, width=size[0], height=size[1], image=image, mask=mask)
    return replace(drawn, more={PLACE: place}) if place else drawn


def _with_sides(step: Step, ratio: float) -> torch.Tensor:
    """Returns the step's estimate for a picture whose width is `ratio` times its height."""
    return enlargement.with_sides(step.estimate(), ratio)
