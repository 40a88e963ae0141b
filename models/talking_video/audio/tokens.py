"""The audio tokens of each latent frame, from the speech encoder's layers: windows, and the projector.

    features (F, layers, width), 25 a second
        ──windows──>         (frames, 5, layers, width)    each frame with its neighbours
        ──AudioProjector──>  (latents, tokens, width)      one group of tokens for each latent frame

A latent frame represents four pixel frames (the first represents one), so it gets the windows of all four
without their overlap: the rows up to the middle of its first frame, the middle row of the next two, and the
rows from the middle on of its last. That is 3 + 1 + 1 + 3 = 8 rows where a window has five.

After MeiGen-AI's InfiniteTalk and MultiTalk (arXiv 2505.22647), whose weights fit these modules by name.
"""

from __future__ import annotations

import torch
from torch import nn

from stoker.models.talking_video.sampling.chunks import STRIDE, Chunk, mirrored


def window_indices(chunk: Chunk, length: int, window: int) -> torch.Tensor:
    """Returns the numbers of the audio frames in the window of each frame of the chunk: (frames, window),
    int64.

    Before the start of the video the first audio frame is repeated; beyond its end the audio is mirrored. A
    window depends on the frame's number in the video alone, so a frame that two chunks share has the same
    window in both.
    """
    half = window // 2
    indices = [
        [mirrored(max(frame + offset, 0), length) for offset in range(-half, half + 1)]
        for frame in range(chunk.first, chunk.first + chunk.frames)
    ]
    return torch.tensor(indices)


def rows_of_latents(windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Converts (B, 4n+1, window, layers, width) to (B, 1, window, …) of the first latent and (B, n, rows, …)
    of the others, where `rows` is window + 3."""
    half = windows.shape[2] // 2
    later = windows[:, 1:]
    groups = later.reshape(later.shape[0], -1, STRIDE, *later.shape[2:])
    rows = [
        groups[:, :, 0, : half + 1],
        groups[:, :, 1:-1, half],
        groups[:, :, -1, half:],
    ]
    return windows[:, :1], torch.cat(rows, dim=2)


class AudioProjector(nn.Module):
    """The network that turns the windows of one chunk into its tokens: (B, 4n+1, window, layers, width) to
    (B, n+1, tokens, width).

    The names of its layers are those of the published weights.
    """

    def __init__(self, window: int, layers: int, width: int, hidden: int, tokens: int) -> None:
        super().__init__()
        rows = window + STRIDE - 1
        self.tokens, self.width = tokens, width
        self.proj1 = nn.Linear(window * layers * width, hidden)
        self.proj1_vf = nn.Linear(rows * layers * width, hidden)
        self.proj2 = nn.Linear(hidden, hidden)
        self.proj3 = nn.Linear(hidden, tokens * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        first, later = rows_of_latents(windows)
        hidden = torch.cat(
            [self.proj1(first.flatten(2)).relu(), self.proj1_vf(later.flatten(2)).relu()], dim=1
        )
        tokens = self.proj3(self.proj2(hidden).relu())
        tokens = tokens.reshape(*hidden.shape[:2], self.tokens, self.width)
        norm = self.norm
        normed = nn.functional.layer_norm(
            tokens.float(), (self.width,), norm.weight.float(), norm.bias.float(), norm.eps
        )
        return normed.to(tokens.dtype)
