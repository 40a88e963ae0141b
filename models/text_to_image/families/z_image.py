"""Z-Image: a language model reads the prompt. Turbo is distilled for 8 steps without guidance.

With guidance (the checkpoint that is not distilled) `guidance` is the factor between two forwards, and the
negative prompt takes the place of the empty one. Without it there is one forward, and no negative prompt.
"""

from __future__ import annotations

from typing import Any

from stoker.models.interface import ImageParameters
from stoker.models.text_to_image.families.diffusers_pipeline import DiffusersPipeline
from stoker.models.text_to_image.families.schedulers import FLOW_MATCHING, some


class ZImage(DiffusersPipeline):
    library_class = "ZImagePipeline"
    schedulers = some(FLOW_MATCHING, "euler")
    from_image_class = "ZImageImg2ImgPipeline"
    from_mask_class = "ZImageInpaintPipeline"

    @property
    def head_width(self) -> int:
        config = self.pipe.transformer.config
        return int(config.dim // config.n_heads)

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        return {
            "guidance_scale": parameters.guidance or 0.0,
            "negative_prompt": parameters.negative_prompt,
        }
