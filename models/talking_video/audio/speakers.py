"""The decision which speaker's audio each part of the image follows, when two people are in it.

Every token of the video can attend to the audio of both speakers. Each token has a position on a line: near 2
where the first speaker is, near 22 where the second is, at 12 elsewhere; the audio tokens of the speakers are
at 2 and at 22. Rotary embedding of the positions makes a token attend to the audio near it (MultiTalk's
"label RoPE").

Masks of the reference image show where the speakers are: a token belongs to a speaker by how much it attends,
in self-attention, to the part of the reference that the speaker's mask covers. With one speaker none of this
is computed.
"""

from __future__ import annotations

from typing import Final

import torch

RANGES: Final = ((0.0, 4.0), (20.0, 24.0))
"""The positions of each speaker's tokens: the more a token attends to the speaker, the higher."""

BACKGROUND: Final = 12.0
AUDIO_POSITIONS: Final = (2.0, 22.0)
"""The position of each speaker's audio tokens: the middle of the speaker's range."""

ROWS: Final = 4096
"""Queries at a time in `reference_attention`: the whole matrix would not fit (75,600 tokens at 720p)."""


def rotated(states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Applies 1-D rotary embedding: states (B, N, heads, width), positions (B, N) or (N,), adjacent channels
    in pairs."""
    width = states.shape[-1]
    exponents = torch.arange(0, width, 2, device=states.device).float() / width
    angles = positions.float().unsqueeze(-1) * 10_000.0**-exponents
    cos, sin = angles.cos().unsqueeze(-2), angles.sin().unsqueeze(-2)
    even, odd = states.float()[..., 0::2], states.float()[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
    return turned.flatten(-2).to(states.dtype)


def reference_attention(queries: torch.Tensor, keys: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Returns the share of attention that each token gives to each part of the reference: (masks, B, N).

    queries (B, N, heads, width) of all tokens, keys (B, R, heads, width) of the reference frame's tokens,
    masks (masks, R) of zeros and ones. A share is the attention on the masked tokens, averaged over the
    heads and divided by the size of the mask."""
    sizes = masks.sum(dim=1).clamp(min=1.0)
    weights = (masks / sizes.unsqueeze(1)).t().float()
    scaled = keys.permute(0, 2, 3, 1).float() * keys.shape[-1] ** -0.5
    parts = []
    for some in torch.split(queries, ROWS, dim=1):
        attention = (some.transpose(1, 2).float() @ scaled).softmax(dim=-1)
        parts.append((attention @ weights).mean(dim=1))
    return torch.cat(parts, dim=1).permute(2, 0, 1)


def positions_from_attention(attention: torch.Tensor) -> torch.Tensor:
    """Converts (3, B, N) of the two speakers and the background to positions (B, N). The largest value
    chooses the range; its rank among all tokens chooses the position within the range."""
    spread = [
        _between(attention[speaker], *RANGES[speaker])
        if speaker < 2
        else torch.full_like(attention[2], BACKGROUND)
        for speaker in range(3)
    ]
    winner = attention.argmax(dim=0, keepdim=True)
    return torch.stack(spread).gather(0, winner).squeeze(0)


def _between(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    least, most = values.amin(dim=-1, keepdim=True), values.amax(dim=-1, keepdim=True)
    return low + (values - least) / (most - least).clamp(min=1e-8) * (high - low)
