"""The network: diffusers' Wan transformer, with an ear in every block.

    block:  x ── self-attention ── text and picture attention ── audio attention ── feed-forward ──> x
                                                                   └ each latent frame hears its own tokens

The audio's tokens are projected once for a chunk (`audio_tokens`), not once a step. Tokens of a latent frame
attend to that frame's audio alone, so the attention is cheap: frames become the batch. With two speakers each
frame's tokens hold both voices, and places decide who hears which (see `speakers`).

Whatever the network's dtype is, time, modulation, norms and the last layer are float32, as in the authors'
code: guidance takes differences of velocities, and would multiply what rounding does to them.

The names of the added parameters are those of InfiniteTalk's published weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from diffusers.configuration_utils import register_to_config
from diffusers.models.normalization import FP32LayerNorm
from diffusers.models.transformers.transformer_wan import WanTransformer3DModel, WanTransformerBlock
from torch import nn

from stoker.models.talking_video.audio_tokens import AudioProjector
from stoker.models.talking_video.speakers import VOICES, places_from_attention, reference_attention, rotated

__all__ = ["AudioCrossAttention", "TalkingBlock", "TalkingTransformer3DModel"]


class AudioCrossAttention(nn.Module):
    """x (B, T*S, dim) of T latent frames hears audio (B, T, tokens, width)."""

    def __init__(self, dim: int, heads: int, audio_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_linear = nn.Linear(dim, dim)
        self.kv_linear = nn.Linear(audio_dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(
        self, hidden: torch.Tensor, audio: torch.Tensor, places: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`places` (B, T*S): where each token stands between two speakers; None with one."""
        batch, latents, tokens, _ = audio.shape
        query = self.q_linear(hidden).reshape(*hidden.shape[:2], self.heads, -1)
        key_value = self.kv_linear(audio).reshape(batch * latents, tokens, 2, self.heads, -1)
        key, value = key_value[:, :, 0], key_value[:, :, 1]
        if places is not None:
            query = rotated(query, places)
            key = rotated(key, _voices(tokens, key.device))
        query = query.reshape(batch * latents, -1, *query.shape[2:])
        heard = nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        )
        out: torch.Tensor = self.proj(heard.transpose(1, 2).reshape(hidden.shape))
        return out


def _voices(tokens: int, device: torch.device) -> torch.Tensor:
    """The places of a frame's audio tokens: the first half is the first speaker's."""
    each = tokens // len(VOICES)
    return torch.tensor(VOICES, device=device).repeat_interleave(each)


class TalkingBlock(WanTransformerBlock):  # type: ignore[misc]
    """Wan's block, and the audio between its cross-attention and its feed-forward."""

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
        hidden: torch.Tensor,
        context: torch.Tensor,
        time: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        audio: torch.Tensor,
        masks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`masks` (3, R) of two speakers and the background, at the reference's R tokens; None with one."""
        modulation = (self.scale_shift_table + time.float()).chunk(6, dim=1)
        shift, scale, gate, ff_shift, ff_scale, ff_gate = modulation
        normed = (self.norm1(hidden.float()) * (1 + scale) + shift).type_as(hidden)
        places = None if masks is None else self._places(normed, rotary, masks)
        hidden = (hidden.float() + self.attn1(normed, None, None, rotary) * gate).type_as(hidden)
        normed = self.norm2(hidden.float()).type_as(hidden)
        hidden = hidden + self.attn2(normed, context, None, None)
        normed = self.norm_x(hidden.float()).type_as(hidden)
        hidden = hidden + self.audio_cross_attn(normed, audio, places)
        normed = (self.norm3(hidden.float()) * (1 + ff_scale) + ff_shift).type_as(hidden)
        out: torch.Tensor = (hidden.float() + self.ffn(normed).float() * ff_gate).type_as(hidden)
        return out

    def _places(
        self, normed: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor], masks: torch.Tensor
    ) -> torch.Tensor:
        """Where each token stands between the speakers, by what it attends to in the reference: the first
        latent frame, whose tokens come first."""
        attention = self.attn1
        heads = (attention.heads, -1)
        query = attention.norm_q(attention.to_q(normed)).reshape(*normed.shape[:2], *heads)
        first = normed[:, : masks.shape[1]]
        key = attention.norm_k(attention.to_k(first)).reshape(*first.shape[:2], *heads)
        at_first = (rotary[0][:, : masks.shape[1]], rotary[1][:, : masks.shape[1]])
        found = reference_attention(_turned(query, rotary), _turned(key, at_first), masks)
        return places_from_attention(found)


def _turned(states: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Wan's rotary embedding of (B, N, heads, width), as its attention applies it."""
    cos, sin = rotary[0][..., 0::2], rotary[1][..., 1::2]
    even, odd = states[..., 0::2], states[..., 1::2]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return turned.flatten(-2).type_as(states)


class TalkingTransformer3DModel(WanTransformer3DModel):  # type: ignore[misc]
    """Predicts the velocity of a chunk's latents. See the module; `audio_*` are the projector's sizes."""

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
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        ours = {name: given[name] for name in given if name.startswith("audio_")}
        wan = {name: value for name, value in given.items() if name not in ours}
        super().__init__(**{**wan, "num_layers": 0})
        # The parent has noted its own arguments as the whole configuration, and no blocks.
        self.register_to_config(**given)
        dim = num_attention_heads * attention_head_dim
        sizes = (dim, ffn_dim, num_attention_heads, qk_norm, cross_attn_norm, eps, added_kv_proj_dim)
        self.blocks = nn.ModuleList(TalkingBlock(*sizes, audio_dim) for _ in range(num_layers))
        self.audio_proj = AudioProjector(audio_window, audio_layers, audio_dim, audio_hidden, audio_tokens)

    def forward(
        self,
        latents: torch.Tensor,
        time: torch.Tensor,
        text: torch.Tensor,
        picture: torch.Tensor,
        audio: torch.Tensor,
        masks: torch.Tensor | None = None,
        before_block: Callable[[], None] = lambda: None,
    ) -> torch.Tensor:
        """The velocity, (B, out, T, H, W), of latents (B, in, T, H, W) at `time` (B,), 0 to 1000.

        text (B, tokens, text_dim), picture (B, 257, image_dim): the encoders' outputs; audio (B, T, tokens,
        audio_dim): the projector's, of two speakers (B, T, 2 * tokens, audio_dim), with `masks`.
        `before_block` may raise: a forward takes seconds.
        """
        rotary = self.rope(latents)
        hidden = self.patch_embedding(latents).flatten(2).transpose(1, 2).contiguous()
        embedder = self.condition_embedder
        picture, text = embedder.image_embedder(picture), embedder.text_embedder(text)
        context = torch.cat([picture, text], dim=1)
        state = embedder.time_embedder(embedder.timesteps_proj(time).to(self.scale_shift_table.dtype))
        modulation = embedder.time_proj(embedder.act_fn(state)).unflatten(1, (6, -1))
        for block in self.blocks:
            before_block()
            hidden = block(hidden, context, modulation, rotary, audio, masks)
        return self._velocity(hidden, state, latents.shape)

    def _velocity(self, hidden: torch.Tensor, state: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Tokens to latents again."""
        shift, scale = (self.scale_shift_table + state.unsqueeze(1)).chunk(2, dim=1)
        normed = self.norm_out(hidden.float()) * (1 + scale) + shift
        patch: tuple[Any, ...] = tuple(self.config.patch_size)
        grid = [side // part for side, part in zip(shape[2:], patch, strict=True)]
        pieces = self.proj_out(normed.type_as(shift)).reshape(hidden.shape[0], *grid, *patch, -1)
        out: torch.Tensor = pieces.permute(0, 7, 1, 4, 2, 5, 3, 6).flatten(6, 7).flatten(4, 5).flatten(2, 3)
        return out
