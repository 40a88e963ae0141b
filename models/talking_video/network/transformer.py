"""The network: diffusers' Wan transformer, with attention to audio in every block.

    block:  x ── self-attention ── text and image attention ── audio attention ── feed-forward ──> x
                                                                   └ to the audio of the same latent frame

The audio's tokens are projected once for a chunk (`audio_tokens`), not once a step. Tokens of a latent frame
attend to that frame's audio alone, so the attention is cheap: frames become the batch. With two speakers each
frame has the audio tokens of both, and positions decide which ones a token attends to (see `speakers`).

Whatever the network's dtype is, time, modulation, norms and the last layer are float32, as in the authors'
code: guidance takes differences of velocities, and would multiply their rounding errors.

The added parameters have the names of InfiniteTalk's published weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from diffusers.configuration_utils import register_to_config
from diffusers.hooks._helpers import TransformerBlockMetadata, TransformerBlockRegistry
from diffusers.models.attention_dispatch import dispatch_attention_fn
from diffusers.models.normalization import FP32LayerNorm
from diffusers.models.transformers.transformer_wan import WanTransformer3DModel, WanTransformerBlock
from torch import nn

from stoker.models.talking_video.audio.speakers import (
    AUDIO_POSITIONS,
    positions_from_attention,
    reference_attention,
    rotated,
)
from stoker.models.talking_video.audio.tokens import AudioProjector


class AudioCrossAttention(nn.Module):
    """Attention of x (B, T*S, dim), the tokens of T latent frames, to audio (B, T, tokens, width)."""

    def __init__(self, dim: int, heads: int, audio_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_linear = nn.Linear(dim, dim)
        self.kv_linear = nn.Linear(audio_dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(
        self, hidden: torch.Tensor, audio: torch.Tensor, positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns the states with the audio attended to. `positions` (B, T*S): the position of each token
        between two speakers; None with one."""
        batch, latents, tokens, _ = audio.shape
        query = self.q_linear(hidden).reshape(*hidden.shape[:2], self.heads, -1)
        key_value = self.kv_linear(audio).reshape(batch * latents, tokens, 2, self.heads, -1)
        key, value = key_value[:, :, 0], key_value[:, :, 1]
        if positions is not None:
            query = rotated(query, positions)
            # The first half of a frame's audio tokens is the first speaker's.
            each = tokens // len(AUDIO_POSITIONS)
            audio_positions = torch.tensor(AUDIO_POSITIONS, device=key.device).repeat_interleave(each)
            key = rotated(key, audio_positions)
        query = query.reshape(batch * latents, -1, *query.shape[2:])
        attended = dispatch_attention_fn(query, key, value)
        out: torch.Tensor = self.proj(attended.reshape(hidden.shape))
        return out


class TalkingBlock(WanTransformerBlock):  # type: ignore[misc]
    """Wan's block, with attention to audio between its cross-attention and its feed-forward."""

    def __init__(
        self,
        dim: int,
        ffn_dim: int,
        num_heads: int,
        qk_norm: str,
        cross_attn_norm: bool,
        eps: float,
        added_kv_proj_dim: int | None,
        audio_dim: int,
    ) -> None:
        super().__init__(dim, ffn_dim, num_heads, qk_norm, cross_attn_norm, eps, added_kv_proj_dim)
        self.norm_x = FP32LayerNorm(dim, eps=1e-6, elementwise_affine=True)
        self.audio_cross_attn = AudioCrossAttention(dim, num_heads, audio_dim)

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: torch.Tensor,
        time: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        audio: torch.Tensor,
        masks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the block's output. `masks` (3, R) of two speakers and the background, for the R tokens of
        the reference; None with one speaker. The first argument has the name by which diffusers' step caches
        find it."""
        hidden = hidden_states
        modulation = (self.scale_shift_table + time.float()).chunk(6, dim=1)
        shift, scale, gate, ff_shift, ff_scale, ff_gate = modulation
        normed = (self.norm1(hidden.float()) * (1 + scale) + shift).type_as(hidden)
        positions = None if masks is None else self._positions(normed, rotary, masks)
        hidden = (hidden.float() + self.attn1(normed, None, None, rotary) * gate).type_as(hidden)
        normed = self.norm2(hidden.float()).type_as(hidden)
        hidden = hidden + self.attn2(normed, context, None, None)
        normed = self.norm_x(hidden.float()).type_as(hidden)
        hidden = hidden + self.audio_cross_attn(normed, audio, positions)
        normed = (self.norm3(hidden.float()) * (1 + ff_scale) + ff_shift).type_as(hidden)
        out: torch.Tensor = (hidden.float() + self.ffn(normed).float() * ff_gate).type_as(hidden)
        return out

    def _positions(
        self, normed: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor], masks: torch.Tensor
    ) -> torch.Tensor:
        """Returns the position of each token between the speakers, by its attention to the reference, which
        is the first latent frame; the tokens of that frame come first."""
        attention = self.attn1
        heads = (attention.heads, -1)
        query = attention.norm_q(attention.to_q(normed)).reshape(*normed.shape[:2], *heads)
        first = normed[:, : masks.shape[1]]
        key = attention.norm_k(attention.to_k(first)).reshape(*first.shape[:2], *heads)
        at_first = (rotary[0][:, : masks.shape[1]], rotary[1][:, : masks.shape[1]])
        found = reference_attention(_turned(query, rotary), _turned(key, at_first), masks)
        return positions_from_attention(found)


TransformerBlockRegistry.register(TalkingBlock, TransformerBlockMetadata(return_hidden_states_index=0))


def _turned(states: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Returns Wan's rotary embedding of (B, N, heads, width), as its attention applies it."""
    cos, sin = rotary[0][..., 0::2], rotary[1][..., 1::2]
    even, odd = states[..., 0::2], states[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return turned.flatten(-2).type_as(states)


class TalkingTransformer3DModel(WanTransformer3DModel):  # type: ignore[misc]
    """The network that predicts the velocity of a chunk's latents. `audio_*` are the sizes of the audio
    projector."""

    _no_split_modules: ClassVar[list[str]] = ["TalkingBlock"]
    _repeated_blocks: ClassVar[list[str]] = ["TalkingBlock"]
    _keep_in_fp32_modules: ClassVar[list[str]] = [
        *WanTransformer3DModel._keep_in_fp32_modules,
        "norm_x",
        "time_proj",
        "proj_out",
    ]
    _cp_plan = None

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self,
        patch_size: tuple[int, int, int] = (1, 2, 2),
        num_attention_heads: int = 40,
        attention_head_dim: int = 128,
        in_channels: int = 36,
        out_channels: int = 16,
        text_dim: int = 4096,
        freq_dim: int = 256,
        ffn_dim: int = 13824,
        num_layers: int = 40,
        cross_attn_norm: bool = True,
        qk_norm: str = "rms_norm_across_heads",
        eps: float = 1e-6,
        image_dim: int | None = 1280,
        added_kv_proj_dim: int | None = 5120,
        rope_max_seq_len: int = 1024,
        pos_embed_seq_len: int | None = None,
        audio_dim: int = 768,
        audio_layers: int = 12,
        audio_window: int = 5,
        audio_tokens: int = 32,
        audio_hidden: int = 512,
    ) -> None:
        config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        wan = {name: value for name, value in config.items() if not name.startswith("audio_")}
        super().__init__(**{**wan, "num_layers": 0})
        # The parent has registered its own arguments as the whole configuration, without blocks.
        self.register_to_config(**config)
        dim = num_attention_heads * attention_head_dim
        sizes = (dim, ffn_dim, num_attention_heads, qk_norm, cross_attn_norm, eps, added_kv_proj_dim)
        self.blocks = nn.ModuleList(TalkingBlock(*sizes, audio_dim) for _ in range(num_layers))
        self.audio_proj = AudioProjector(audio_window, audio_layers, audio_dim, audio_hidden, audio_tokens)

    def forward(
        self,
        latents: torch.Tensor,
        time: torch.Tensor,
        text: torch.Tensor,
        image: torch.Tensor,
        audio: torch.Tensor,
        masks: torch.Tensor | None = None,
        before_block: Callable[[], None] = lambda: None,
    ) -> torch.Tensor:
        """Returns the velocity, (B, out, T, H, W), of latents (B, in, T, H, W) at `time` (B,), 0 to 1000.

        text (B, tokens, text_dim), image (B, 257, image_dim): the encoders' outputs; audio (B, T, tokens,
        audio_dim): the projector's output, for two speakers (B, T, 2 * tokens, audio_dim) with `masks`.
        `before_block` may raise to stop, since a forward takes seconds.
        """
        rotary = self.rope(latents)
        hidden = self.patch_embedding(latents).flatten(2).transpose(1, 2).contiguous()
        embedder = self.condition_embedder
        image, text = embedder.image_embedder(image), embedder.text_embedder(text)
        context = torch.cat([image, text], dim=1)
        state = embedder.time_embedder(embedder.timesteps_proj(time).to(self.scale_shift_table.dtype))
        modulation = embedder.time_proj(embedder.act_fn(state)).unflatten(1, (6, -1))
        for block in self.blocks:
            before_block()
            hidden = block(hidden, context, modulation, rotary, audio, masks)
        return self._velocity(hidden, state, latents.shape)

    def _velocity(self, hidden: torch.Tensor, state: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Applies the last layer: tokens to the velocity of latents."""
        shift, scale = (self.scale_shift_table + state.unsqueeze(1)).chunk(2, dim=1)
        normed = self.norm_out(hidden.float()) * (1 + scale) + shift
        patch: tuple[Any, ...] = tuple(self.config.patch_size)
        grid = [side // part for side, part in zip(shape[2:], patch, strict=True)]
        patches = self.proj_out(normed.type_as(shift)).reshape(hidden.shape[0], *grid, *patch, -1)
        out: torch.Tensor = patches.permute(0, 7, 1, 4, 2, 5, 3, 6).flatten(6, 7).flatten(4, 5).flatten(2, 3)
        return out
