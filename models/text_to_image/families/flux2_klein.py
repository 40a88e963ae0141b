"""FLUX.2 klein: a language model reads the prompt, and a transformer works on tokens of 2 x 2 latents.

The checkpoints are distilled for 4 steps without guidance, and use no negative prompt. The images that a
prompt is about are tokens, too, after those of the picture; the library makes larger ones a megapixel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.models.interface import ImageParameters
from stoker.models.text_to_image.families.diffusers_pipeline import DiffusersPipeline
from stoker.models.text_to_image.families.schedulers import FLOW_MATCHING, some

if TYPE_CHECKING:
    import torch


class Flux2Klein(DiffusersPipeline):
    library_class = "Flux2KleinPipeline"
    schedulers = some(FLOW_MATCHING, "euler", "dpm++2m", "unipc")
    references = 4

    def arguments(self, parameters: ImageParameters) -> dict[str, Any]:
        return {"guidance_scale": 1.0 if parameters.guidance is None else parameters.guidance}

    def unpacked(self, latents: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """Unpacks latents: a token has four latent pixels, which are scaled by the autoencoder's
        statistics."""
        vae, side = self.pipe.vae, 2 * self.pipe.vae_scale_factor
        tokens = latents.transpose(1, 2).reshape(1, -1, height // side, width // side)
        deviation = (vae.bn.running_var + vae.config.batch_norm_eps).sqrt()
        scaled = tokens * deviation.view(1, -1, 1, 1) + vae.bn.running_mean.view(1, -1, 1, 1)
        image: torch.Tensor = self.pipe._unpatchify_latents(scaled)
        return image
