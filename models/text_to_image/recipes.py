"""How each pipeline of the image model uses steps, guidance and a negative prompt, and its defaults for them.

Pure data; the bounds are those of the interface, the same for all pipelines (`declaration.SCHEMA`).

Two things are called guidance. *Embedded* guidance: FLUX.1-dev was distilled to take a number as an input,
with one forward a step; `guidance` is always that number. *True* classifier-free guidance: a second forward
with the negative prompt, and a factor for the difference between the two. With embedded guidance the factor
must stay small (1.5 in diffusers' example for FLUX.1-dev), so a request cannot set it. FLUX.1-schnell was
distilled for 4 steps without any guidance; its model card has 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stoker.models.text_to_image.request import ImageRequest

__all__ = ["RECIPES", "Drawing", "Recipe"]


@dataclass(frozen=True, slots=True)
class Drawing:
    """The arguments for the network. `excludes`: the negative prompt, with its `factor`; None if there is no
    second forward. `guidance`: None if the network takes none."""

    steps: int
    guidance: float | None
    excludes: str | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """`guidance`: the default of the embedded guidance; None if the network takes none. `factor`: of the
    negative prompt; None if that is not used."""

    steps: int
    guidance: float | None = None
    factor: float | None = None

    def drawing(self, request: ImageRequest) -> Drawing:
        steps = self.steps if request.num_inference_steps is None else request.num_inference_steps
        guidance = self.guidance
        if guidance is not None and request.guidance is not None:
            guidance = request.guidance
        excludes = None if self.factor is None else request.excludes
        return Drawing(steps, guidance, excludes, None if excludes is None else self.factor)


RECIPES: Final[Mapping[str, Recipe]] = MappingProxyType(
    {
        "flux-1-dev": Recipe(steps=28, guidance=3.5, factor=1.5),
        "flux-1-schnell": Recipe(steps=4),
        "flux-tiny": Recipe(steps=28, guidance=3.5, factor=1.5),
    }
)
"""By the pipeline's name."""
