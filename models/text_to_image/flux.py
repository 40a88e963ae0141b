"""Runs FLUX: free functions around diffusers' pipeline.

    load ──> pipe
    generate(pipe, …):  noise ──> steps of pipe(…) ──> latents ──> decode ──> image
                                     │ after each
                                     └─> on_step(Step): its number, and an estimate of the image

The noise comes from a CPU generator of the request's own and is then moved, so a seed means the same noise on
every machine (equal bytes also need the same kind of device and the same libraries). torch's CPU generator
reads the low 32 bits of a seed. Nothing heavy is imported until it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stoker.models import attention, libraries
from stoker.models.text_to_image.recipes import Drawing
from stoker.models.text_to_image.request import ImageRequest

if TYPE_CHECKING:
    import torch
    from PIL import Image

    Pipe: TypeAlias = Any
    """A diffusers.FluxPipeline; the library has no types."""

__all__ = ["Interrupted", "Step", "decode", "generate", "load", "unpack"]

MAX_CHARACTERS: Final = 32_768
"""The characters of a prompt that are used. The encoders read 512 tokens, but their tokenizers would first
process the whole prompt, which takes twelve seconds for a megabyte."""


class Interrupted(Exception):
    """`on_step` returned False; there is no image."""


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step, counted from 1. `estimate()` returns an estimate of the final latents."""

    number: int
    of: int
    estimate: Callable[[], torch.Tensor]


OnStep: TypeAlias = Callable[[Step], bool]
"""Called after each step; returns whether to go on."""


def load(folder: Path, device: str) -> Pipe:
    """The pipeline of a verified folder, on its device: bfloat16 on a GPU, float32 on a CPU.

    Downloads nothing, and reads weights from safetensors only. Raises attention.AttentionUnavailable.
    """
    libraries.prepare()
    import diffusers
    import torch

    pipe = diffusers.FluxPipeline.from_pretrained(
        str(folder),
        dtype=torch.float32 if device == "cpu" else torch.bfloat16,
        local_files_only=True,
        use_safetensors=True,
    )
    pipe.set_progress_bar_config(disable=True)
    pipe.to(device)
    attention.choose(pipe.transformer, device)
    return pipe


def generate(
    pipe: Pipe, request: ImageRequest, drawing: Drawing, *, seed: int, text_tokens: int, on_step: OnStep
) -> Image.Image:
    """One image. Raises Interrupted when `on_step` returns False."""
    import torch

    with torch.inference_mode():
        noise = _noise(pipe, request, torch.Generator("cpu").manual_seed(seed))
        watch = _Watch(noise, on_step)
        latents = pipe(
            prompt=request.prompt[:MAX_CHARACTERS],
            height=request.height,
            width=request.width,
            num_inference_steps=drawing.steps,
            latents=noise,
            output_type="latent",
            callback_on_step_end=watch,
            callback_on_step_end_tensor_inputs=["latents"],
            max_sequence_length=text_tokens,
            **_guidance(drawing),
        ).images
        if watch.stopped:
            raise Interrupted
        return decode(pipe, latents, request.height, request.width)


def _guidance(drawing: Drawing) -> dict[str, Any]:
    """The pipeline's arguments for guidance. A network that takes no guidance ignores the zero."""
    embedded = {"guidance_scale": drawing.guidance or 0.0}
    if drawing.excludes is None:
        return embedded
    return {
        **embedded,
        "negative_prompt": drawing.excludes[:MAX_CHARACTERS],
        "true_cfg_scale": drawing.factor,
    }


def _noise(pipe: Pipe, request: ImageRequest, generator: torch.Generator) -> torch.Tensor:
    """The same noise that the pipeline would draw itself; drawn here since the first preview needs it."""
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
    """The pipeline's callback: reports each step, and can stop the pipeline between two steps."""

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
    """The latents to which a straight line through the last step leads at sigma 0; they show less noise than
    `after`."""
    velocity = (after.float() - before.float()) / (later - now)
    return after.float() - later * velocity


def unpack(pipe: Pipe, latents: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Tokens to latents for the VAE: (1, channels, rows, columns)."""
    square = pipe._unpack_latents(latents, height, width, pipe.vae_scale_factor)
    shifted: torch.Tensor = square / pipe.vae.config.scaling_factor + pipe.vae.config.shift_factor
    return shifted


def decode(pipe: Pipe, latents: torch.Tensor, height: int, width: int) -> Image.Image:
    """Decodes latents as the pipeline itself does."""
    raw = pipe.vae.decode(unpack(pipe, latents, height, width), return_dict=False)[0]
    image: Image.Image = pipe.image_processor.postprocess(raw, output_type="pil")[0]
    return image
