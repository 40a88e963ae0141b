"""Stable Diffusion 3 and 3.5: classifier-free guidance with two forwards in one batch.

`guidance` is the factor between them, and the negative prompt takes the place of the empty one, so it costs
nothing. With a guidance of 1 or less there is only one forward, and the negative prompt is not used.
"""

from __future__ import annotations

from typing import Any

from stoker.models.interface import ImageParameters
from stoker.models.text_to_image.families.diffusers_pipeline import DiffusersPipeline
from stoker.models.text_to_image.families.schedulers import FLOW_MATCHING, some


class StableDiffusion3(DiffusersPipeline):
    library_class = "StableDiffusion3Pipeline"
    schedulers = some(FLOW_MATCHING, "euler", "heun", "dpm++2m", "unipc")
    from_image_class = "StableDiffusion3Img2ImgPipeline"
    from_mask_class = "StableDiffusion3InpaintPipeline"
    from_image_schedulers = ("euler", "heun")

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        return {
            "guidance_scale": parameters.guidance,
            "negative_prompt": parameters.negative_prompt,
        }
