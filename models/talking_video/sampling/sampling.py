"""The denoising of the latents of one chunk.

    noise of (seed, chunk) ──> at each level: forwards ─> guidance ─> Euler step ─> known latents restored

The known latents (of the image, or of the last frames of the chunk before) are clean at every step, so the
rest is denoised towards them. Latents are float32 whatever the network's dtype is.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from stoker.models.speed_ups import step_caches
from stoker.models.talking_video.sampling.projected_guidance import ProjectedGuidance
from stoker.models.talking_video.sampling.schedule import Forward, Guidance, combine

TIME_SCALE = 1000.0
"""The network counts noise levels in thousandths."""


class Stopped(Exception):
    """The exception raised once `on_step` or `go_on` returned False; there are no latents."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The inputs of the network for one chunk.

    text, no_text (1, 512, text_dim): the encoded prompt and negative prompt; image (1, 257, image_dim); still
    (1, 4 + channels, T, h, w): the mask, and the latents of the image followed by grey frames; audio
    (1, T, tokens, audio_dim) and silence, projected; masks (3, R) of two speakers and the background, None
    with one speaker. Silence has the tokens of one speaker, whatever the number of speakers.
    """

    text: torch.Tensor
    no_text: torch.Tensor
    image: torch.Tensor
    still: torch.Tensor
    audio: torch.Tensor
    silence: torch.Tensor
    masks: torch.Tensor | None = None

    def of(self, forward: Forward) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Returns the text, the audio and the masks of a forward."""
        text = self.text if forward in ("all", "text") else self.no_text
        if forward in ("all", "audio"):
            return text, self.audio, self.masks
        return text, self.silence, None


def chunk_seed(seed: int, chunk: int) -> int:
    """Returns the seed of one chunk, so that a chunk can be generated again alone. The seed has 32 bits:
    torch's CPU generator reads no more."""
    drawn = hashlib.sha256(f"{seed}/{chunk}".encode()).digest()
    return int.from_bytes(drawn[:4], "big")


def noise_of(seed: int, chunk: int, shape: Sequence[int]) -> torch.Tensor:
    """Returns noise from a generator of its own on the CPU: the same on every machine."""
    generator = torch.Generator("cpu").manual_seed(chunk_seed(seed, chunk))
    return torch.randn(tuple(shape), generator=generator)


def denoised(
    network: Any,
    conditions: Conditions,
    noise: torch.Tensor,
    known: torch.Tensor,
    levels: Sequence[float],
    guidance: Guidance,
    on_step: Callable[[int], bool],
    go_on: Callable[[], bool] = lambda: True,
) -> torch.Tensor:
    """Returns clean latents (1, channels, T, h, w), of which the first are `known`. `on_step` is called with
    the number of finished steps and returns whether to continue. `go_on`, which also returns that, is called
    before each block of the network, since a step of three forwards may take half a minute. Raises Stopped.
    """

    def before_block() -> None:
        if not go_on():
            raise Stopped

    projection = guidance.projection
    guided = (
        functools.partial(combine, guidance)
        if projection is None
        else ProjectedGuidance(guidance, projection).combine
    )
    latents, kept = noise.clone(), known.shape[2]
    latents[:, :, :kept] = known
    for done, (now, later) in enumerate(pairwise(levels), start=1):
        time = torch.tensor([now * TIME_SCALE], device=latents.device)
        inputs = torch.cat([latents, conditions.still], dim=1).to(network.dtype)

        def velocity(
            forward: Forward, time: torch.Tensor = time, inputs: torch.Tensor = inputs
        ) -> torch.Tensor:
            text, audio, masks = conditions.of(forward)
            with step_caches.kept_for(network, forward):
                found: torch.Tensor = network(
                    inputs, time, text, conditions.image, audio, masks=masks, before_block=before_block
                )
            return found.float()

        latents = latents + (later - now) * guided(velocity)
        latents[:, :, :kept] = known
        if not on_step(done):
            raise Stopped
    return latents
