"""Frames decoded from latents, one latent at a time, so that the first frames can be sent while the rest is
decoded.

Wan's autoencoder is causal in time: the first latent gives one frame, each later one gives four, and of the
past it needs only what its convolutions cache. Each call holds that cache itself instead of on the module, so
two videos may be decoded at the same time. The frames equal those of decoding all latents at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


class LatentScale:
    """The conversion between the autoencoder's latents and the network's, which have unit variance in each
    channel."""

    def __init__(self, autoencoder: Any) -> None:
        config = autoencoder.config
        shape = (1, -1, 1, 1, 1)
        self._mean = torch.tensor(config.latents_mean).view(shape)
        self._deviation = torch.tensor(config.latents_std).view(shape)

    def to_unit(self, latents: torch.Tensor) -> torch.Tensor:
        return (latents.float() - self._mean.to(latents.device)) / self._deviation.to(latents.device)

    def from_unit(self, latents: torch.Tensor) -> torch.Tensor:
        return latents.float() * self._deviation.to(latents.device) + self._mean.to(latents.device)


def encoded(autoencoder: Any, frames: torch.Tensor) -> torch.Tensor:
    """Frames (1, 3, 4n+1, H, W) from -1 to 1 to latents of unit variance (1, channels, n+1, H/8, W/8),
    float32.

    Returns the mode of the distribution, not a sample.
    """
    posterior = autoencoder.encode(frames.to(autoencoder.dtype)).latent_dist
    return LatentScale(autoencoder).to_unit(posterior.mode())


def decoded(autoencoder: Any, latents: torch.Tensor) -> Iterator[torch.Tensor]:
    """Latents of unit variance (1, channels, n+1, h, w) to frames from -1 to 1, float32: first (1, 3, H, W),
    then n times (4, 3, H, W)."""
    scaled = LatentScale(autoencoder).from_unit(latents).to(autoencoder.dtype)
    cache: list[torch.Tensor | None] = [None] * autoencoder._cached_conv_counts["decoder"]
    for index in range(scaled.shape[2]):
        one = autoencoder.post_quant_conv(scaled[:, :, index : index + 1])
        out = autoencoder.decoder(one, feat_cache=cache, feat_idx=[0], first_chunk=index == 0)
        yield out[0].transpose(0, 1).float().clamp(-1.0, 1.0)
