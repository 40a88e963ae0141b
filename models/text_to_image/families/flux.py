"""FLUX.1: two text encoders, and a transformer over tokens of 2 x 2 latent pixels.

Two things are called guidance. *Embedded* guidance: FLUX.1-dev was distilled to take a number as an input,
with one forward a step; `guidance` is always that number. *True* classifier-free guidance: a second forward
with the negative prompt, and a factor for the difference between the two. With embedded guidance the factor
must stay small (1.5 in diffusers' example for FLUX.1-dev), so a request cannot set it. FLUX.1-schnell was
distilled for 4 steps without any guidance; its model card has 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.models.interface import ImageParameters
from stoker.models.text_to_image.families.diffusers_pipeline import DiffusersPipeline
from stoker.models.text_to_image.families.schedulers import FLOW_MATCHING, some

if TYPE_CHECKING:
    import torch


class Flux(DiffusersPipeline):
    library_class = "FluxPipeline"
    schedulers = some(FLOW_MATCHING, "euler", "dpm++2m", "unipc")
    from_image_class = "FluxImg2ImgPipeline"
    from_mask_class = "FluxInpaintPipeline"

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        """Returns the library's arguments. A network that takes no guidance ignores the zero."""
        embedded = {"guidance_scale": parameters.guidance or 0.0}
        if parameters.negative_prompt is None:
            return embedded
        negative = {"negative_prompt": parameters.negative_prompt, "true_cfg_scale": parameters.factor}
        return embedded | negative

    def unpacked(self, latents: torch.Tensor, height: int, width: int) -> torch.Tensor:
        found: torch.Tensor = self.pipe._unpack_latents(latents, height, width, self.pipe.vae_scale_factor)
        return found
