"""One chunk, from noise to clean latents: the denoising loop in the open.

    noise of (seed, chunk) ──> at each level: forwards ─> guidance ─> Euler step ─> known latents put back

What is known (the picture, or the last frames of the chunk before) is clean at every step, so the rest is
denoised towards it. Latents are float32 whatever the network's dtype is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from stoker.models.talking_video.schedule import Forward, Guidance, combine

__all__ = ["Conditions", "Stopped", "chunk_seed", "denoised", "noise_of"]

TIME_SCALE = 1000.0
"""The network counts noise levels in thousandths."""


class Stopped(Exception):
    """`on_step` or `go_on` said to stop; there are no latents."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a chunk is made from.

    text, no_text (1, 512, text_dim): of the prompt, and of what stands in its place; picture
    (1, 257, image_dim); still (1, 4 + channels, T, h, w): the mask and the latents of the picture followed by
    nothing; audio (1, T, tokens, audio_dim) and silence, projected; masks (3, R) of two speakers and the
    background, None with one. Silence is one voice's however many speak: nobody is told apart in it.
    """

    text: torch.Tensor
    no_text: torch.Tensor
    picture: torch.Tensor
    still: torch.Tensor
    audio: torch.Tensor
    silence: torch.Tensor
    masks: torch.Tensor | None = None

    def of(self, forward: Forward) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """The text, the audio and the masks of a forward."""
        text = self.text if forward in ("all", "text") else self.no_text
        if forward in ("all", "audio"):
            return text, self.audio, self.masks
        return text, self.silence, None


def chunk_seed(seed: int, chunk: int) -> int:
    """Each chunk's own, so that one can be made again alone. 32 bits: torch's CPU generator reads no more."""
    drawn = hashlib.sha256(f"{seed}/{chunk}".encode()).digest()
    return int.from_bytes(drawn[:4], "big")


def noise_of(seed: int, chunk: int, shape: Sequence[int]) -> torch.Tensor:
    """Drawn on the CPU, by a generator of its own: the same on every machine."""
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
    """Clean latents (1, channels, T, h, w), of which the first are `known`. `on_step` is told how many
    steps are done and says whether to go on; `go_on` is asked within them, before each block of the network:
    a step of three forwards may take half a minute. Raises Stopped."""

    def before_block() -> None:
        if not go_on():
            raise Stopped

    latents, kept = noise.clone(), known.shape[2]
    latents[:, :, :kept] = known
    for done, (now, later) in enumerate(pairwise(levels), start=1):
        time = torch.tensor([now * TIME_SCALE], device=latents.device)
        seen = torch.cat([latents, conditions.still], dim=1).to(network.dtype)

        def velocity(forward: Forward, time: torch.Tensor = time, seen: torch.Tensor = seen) -> torch.Tensor:
            text, audio, masks = conditions.of(forward)
            told: torch.Tensor = network(
                seen, time, text, conditions.picture, audio, masks=masks, before_block=before_block
            )
            return told.float()

        latents = latents + (later - now) * combine(guidance, velocity)
        latents[:, :, :kept] = known
        if not on_step(done):
            raise Stopped
    return latents
