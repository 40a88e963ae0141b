"""Stable Diffusion 3 and 3.5: classifier-free guidance with two forwards in one batch.

`guidance` is the factor between them, and the negative prompt takes the place of the empty one, so it costs
nothing. With a guidance of 1 or less there is only one forward, and the negative prompt is not used.
"""

from __future__ import annotations

from typing import Any

from stoker.models.interface import ImageParameters
from stoker.models.text_to_image.families.diffusers_pipeline import DiffusersPipeline


class StableDiffusion3(DiffusersPipeline):
    library_class = "StableDiffusion3Pipeline"

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        return {
            "guidance_scale": parameters.guidance,
            "negative_prompt": parameters.negative_prompt,
        }
