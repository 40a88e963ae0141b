"""Qwen-Image: a vision-language model reads the prompt, and a transformer works on tokens of 2 x 2 latents.

`guidance` is the factor of true classifier-free guidance: a second forward, with the negative prompt. The
library leaves it out without a negative prompt; the model's page gives a space where there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.models.interface import ImageParameters
from stoker.models.text_to_image.families.diffusers_pipeline import DiffusersPipeline
from stoker.models.text_to_image.families.schedulers import FLOW_MATCHING, some

if TYPE_CHECKING:
    import torch


class QwenImage(DiffusersPipeline):
    library_class = "QwenImagePipeline"
    schedulers = some(FLOW_MATCHING, "euler", "unipc")
    from_image_class = "QwenImageImg2ImgPipeline"
    from_mask_class = "QwenImageInpaintPipeline"

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        return {
            "true_cfg_scale": parameters.guidance,
            "negative_prompt": parameters.negative_prompt or " ",
        }

    def unpacked(self, latents: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """Unpacks latents: the library's latents are a video of one frame."""
        found = self.pipe._unpack_latents(latents, height, width, self.pipe.vae_scale_factor)
        image: torch.Tensor = found[:, :, 0]
        return image
