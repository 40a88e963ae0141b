"""FLUX, from a folder to a picture: free functions around diffusers' own pipeline.

    load ──> pipe
    generate(pipe, …):  noise ──> steps of pipe(…) ──> latents ──> decode ──> picture
                                     │ after each
                                     └─> on_step(Step): its number, and what the picture will be like

The noise is drawn on a CPU generator of this request's own and then moved, so a seed means the same noise on
every machine (equal bytes also need the same kind of device and the same libraries). torch's CPU generator
reads the low 32 bits of a seed. Nothing heavy is imported until it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stoker.models.text_to_image.request import ImageRequest

if TYPE_CHECKING:
    import torch
    from PIL import Image

    Pipe: TypeAlias = Any
    """A diffusers.FluxPipeline; the library has no types."""

__all__ = ["Interrupted", "Step", "decode", "generate", "load", "unpack", "versions"]

NO_EMBEDDED_GUIDANCE: Final = 1.0
"""What a guidance-distilled model gets when true classifier-free guidance does the work."""

READ: Final = 32_768
"""Letters of a prompt that are looked at. The encoders read 512 tokens of it, but their tokenizers would
first cut all of it into tokens: twelve seconds for a megabyte."""


class Interrupted(Exception):
    """`on_step` asked to stop; there is no picture."""


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step, counted from 1. `estimate()` is the final latents as they look from here."""

    number: int
    of: int
    estimate: Callable[[], torch.Tensor]


OnStep: TypeAlias = Callable[[Step], bool]
"""Told after each step; returns whether to go on."""


def load(folder: Path, device: str) -> Pipe:
    """The pipeline of a verified folder, on its device: bfloat16 on a GPU, float32 on a CPU.

    Never asks the network, and reads nothing but safetensors.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import diffusers
    import torch
    import transformers

    for library in (transformers, diffusers):
        library.utils.logging.disable_progress_bar()
        library.utils.logging.set_verbosity_error()  # their warnings quote prompts
    pipe = diffusers.FluxPipeline.from_pretrained(
        str(folder),
        dtype=torch.float32 if device == "cpu" else torch.bfloat16,
        local_files_only=True,
        use_safetensors=True,
    )
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(device)


def versions() -> dict[str, str]:
    import diffusers
    import torch
    import transformers

    return {
        "diffusers": diffusers.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def generate(
    pipe: Pipe, request: ImageRequest, *, seed: int, text_tokens: int, on_step: OnStep
) -> Image.Image:
    """One picture. Raises Interrupted when `on_step` says so."""
    import torch

    with torch.inference_mode():
        noise = _noise(pipe, request, torch.Generator("cpu").manual_seed(seed))
        watch = _Watch(noise, on_step)
        latents = pipe(
            prompt=request.prompt[:READ],
            height=request.height,
            width=request.width,
            num_inference_steps=request.num_inference_steps,
            latents=noise,
            output_type="latent",
            callback_on_step_end=watch,
            callback_on_step_end_tensor_inputs=["latents"],
            max_sequence_length=text_tokens,
            **_guidance(request),
        ).images
        if watch.stopped:
            raise Interrupted
        return decode(pipe, latents, request.height, request.width)


def _guidance(request: ImageRequest) -> dict[str, Any]:
    """See `declaration`: one kind of guidance at a time."""
    if request.excludes is None:
        return {"guidance_scale": request.guidance}
    return {
        "negative_prompt": request.excludes[:READ],
        "true_cfg_scale": request.guidance,
        "guidance_scale": NO_EMBEDDED_GUIDANCE,
    }


def _noise(pipe: Pipe, request: ImageRequest, generator: torch.Generator) -> torch.Tensor:
    """Exactly what the pipeline would draw itself; drawn here since the first preview needs it."""
    noise, _ = pipe.prepare_latents(
        1,
        pipe.transformer.config.in_channels // 4,
        request.height,
        request.width,
        pipe.transformer.dtype,
        pipe._execution_device,
        generator,
    )
    drawn: torch.Tensor = noise
    return drawn


class _Watch:
    """Follows the pipeline from step to step, and stops it between two of them."""

    def __init__(self, noise: torch.Tensor, on_step: OnStep) -> None:
        self.stopped = False
        self._before = noise
        self._on_step = on_step
        self._sigmas: list[float] = []

    def __call__(self, pipe: Pipe, index: int, timestep: object, tensors: dict[str, Any]) -> dict[str, Any]:
        if self.stopped:
            return tensors
        if not self._sigmas:
            self._sigmas = pipe.scheduler.sigmas.tolist()
        before, after = self._before, tensors["latents"]
        now, later = self._sigmas[index], self._sigmas[index + 1]
        step = Step(index + 1, len(self._sigmas) - 1, lambda: _estimate(before, after, now, later))
        self._before = after
        if not self._on_step(step):
            self.stopped = pipe._interrupt = True
        return tensors


def _estimate(before: torch.Tensor, after: torch.Tensor, now: float, later: float) -> torch.Tensor:
    """Where a straight line through the last step ends at sigma 0: less noise to see than in `after`."""
    velocity = (after.float() - before.float()) / (later - now)
    return after.float() - later * velocity


def unpack(pipe: Pipe, latents: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Tokens back to a picture of latents, as the VAE takes them: (1, channels, rows, columns)."""
    square = pipe._unpack_latents(latents, height, width, pipe.vae_scale_factor)
    shifted: torch.Tensor = square / pipe.vae.config.scaling_factor + pipe.vae.config.shift_factor
    return shifted


def decode(pipe: Pipe, latents: torch.Tensor, height: int, width: int) -> Image.Image:
    """The pipeline's own last lines."""
    raw = pipe.vae.decode(unpack(pipe, latents, height, width), return_dict=False)[0]
    image: Image.Image = pipe.image_processor.postprocess(raw, output_type="pil")[0]
    return image
