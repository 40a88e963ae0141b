"""Stable Diffusion XL: a U-Net, and classifier-free guidance with two forwards in one batch.

`guidance` is the factor between them, and the negative prompt takes the place of the empty one, so it costs
nothing. With a guidance of 1 or less there is only one forward, and the negative prompt is not used.
"""

from __future__ import annotations

from typing import Any

from stoker.models.interface import ImageParameters
from stoker.models.text_to_image.families.diffusers_pipeline import DiffusersPipeline
from stoker.models.text_to_image.families.schedulers import DIFFUSION


class StableDiffusionXL(DiffusersPipeline):
    library_class = "StableDiffusionXLPipeline"
    network = "unet"
    schedulers = DIFFUSION
    from_image_class = "StableDiffusionXLImg2ImgPipeline"
    from_mask_class = "StableDiffusionXLInpaintPipeline"
    from_image_schedulers = tuple(DIFFUSION)

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        return {
            "guidance_scale": parameters.guidance,
            "negative_prompt": parameters.negative_prompt,
        }

    def from_image_arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        """Increases a strength that leaves no step: the library rounds the number of steps down, and fails
        where none is left."""
        at_least = min(1.0, 1.5 / parameters.steps)
        few = int(parameters.steps * parameters.strength) < 1
        return {"image": parameters.image, "strength": at_least if few else parameters.strength}

    @property
    def head_width(self) -> int:
        """The configuration calls the number of heads their width; a head of SDXL has 64 channels."""
        return 64
