"""The network against the reference in float64, at several shapes; and mutants, which the same checks notice.

What the network computes in float32 whatever its dtype is (norms, modulation, rotary tables) is computed in
float64 here, so that the comparison is to ten digits and not to six.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanTransformer3DModel

from stoker.models.talking_video.audio import speakers
from stoker.models.talking_video.audio import tokens as audio_tokens
from stoker.models.talking_video.network import transformer
from stoker.models.talking_video.network.weights import kept_in_float32
from stoker.models.talking_video.sampling.chunks import Chunk
from tests.models.talking_video.network import reference
from tests.mutants import mutant

CONFIG: dict[str, Any] = {
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "in_channels": 12,
    "out_channels": 4,
    "text_dim": 16,
    "freq_dim": 32,
    "ffn_dim": 64,
    "num_layers": 2,
    "image_dim": 16,
    "added_kv_proj_dim": 32,
    "audio_dim": 16,
    "audio_layers": 2,
    "audio_tokens": 4,
    "audio_hidden": 16,
}
TEXT = reference.TEXT_TOKENS


@pytest.fixture(autouse=True)
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


def with_random_weights(module: Any) -> Any:
    """Every parameter random, norms' gains and biases too: none may be overlooked."""
    for parameter in module.parameters():
        spread = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
        parameter.data = drawn(*parameter.shape) * spread + (1.0 if parameter.dim() == 1 else 0.0)
    return module.double().eval()


def weights_of(module: Any) -> dict[str, Any]:
    return {name: value.numpy() for name, value in module.state_dict().items()}


def agree(ours: torch.Tensor, theirs: Any) -> None:
    assert ours.dtype == torch.float64
    assert np.std(theirs) > 1e-3, "the reference says nothing"
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-10, atol=1e-11)


# Windows and projector


@pytest.mark.parametrize(
    ("chunk", "length"),
    [
        (Chunk(0, 0, 17, 0, 17), 40),
        (Chunk(1, 12, 17, 5, 12), 40),
        (Chunk(2, 24, 17, 5, 11), 40),
        (Chunk(0, 0, 81, 0, 5), 5),
        (Chunk(0, 0, 81, 0, 81), 81),
        (Chunk(0, 0, 1, 0, 1), 1),
        (Chunk(3, 216, 81, 9, 30), 255),
    ],
)
def test_windower(chunk: Chunk, length: int) -> None:
    check_windower(audio_tokens, chunk, length)


def check_windower(module: Any, chunk: Chunk, length: int) -> None:
    features = drawn(length, 2, 3)
    for size in (1, 3, 5):
        positions = module.window_indices(chunk, length, size)
        theirs = reference.windows(features.numpy(), chunk.first, chunk.frames, size)
        np.testing.assert_array_equal(features[positions].numpy(), theirs)


@pytest.mark.parametrize("frames", [1, 5, 17, 81])
@pytest.mark.parametrize("sizes", [(5, 2, 16, 16, 4), (5, 12, 8, 24, 32), (3, 1, 6, 5, 2)])
def test_projector(frames: int, sizes: tuple[int, ...]) -> None:
    check_projector(audio_tokens, frames, sizes)


def check_projector(module: Any, frames: int = 9, sizes: tuple[int, ...] = (5, 2, 16, 16, 4)) -> None:
    size, layers, width, hidden, tokens = sizes
    projector = with_random_weights(module.AudioProjector(size, layers, width, hidden, tokens))
    windows = drawn(2, frames, size, layers, width)
    ours = projector(windows)
    for one, of in zip(ours, windows, strict=True):
        agree(one, reference.projected(weights_of(projector), of.numpy(), width))


# Audio attention


@pytest.mark.parametrize(
    ("latents", "per_frame", "tokens", "heads", "width"),
    [(1, 1, 2, 1, 2), (3, 6, 4, 2, 16), (2, 5, 64, 4, 6), (5, 4, 32, 3, 10)],
)
@pytest.mark.parametrize("two", [False, True], ids=["one speaker", "two speakers"])
def test_audio_attention(
    latents: int, per_frame: int, tokens: int, heads: int, width: int, two: bool
) -> None:
    check_audio_attention(transformer, latents, per_frame, tokens, heads, width, two)


def check_audio_attention(
    module: Any,
    latents: int = 3,
    per_frame: int = 4,
    tokens: int = 4,
    heads: int = 2,
    width: int = 8,
    two: bool = False,
) -> None:
    attention = with_random_weights(module.AudioCrossAttention(heads * width, heads, 7))
    hidden, audio = drawn(2, latents * per_frame, heads * width), drawn(2, latents, tokens, 7)
    positions = torch.rand(2, latents * per_frame, dtype=torch.float64) * 24 if two else None
    ours = attention(hidden, audio, positions)
    for sample in range(2):
        at = None if positions is None else positions[sample].numpy()
        inputs = (hidden[sample].numpy(), audio[sample].numpy(), heads, at)
        agree(ours[sample], reference.audio_attention(weights_of(attention), *inputs))


def test_audio_reaches_its_own_latent_frame_only() -> None:
    attention = with_random_weights(transformer.AudioCrossAttention(8, 2, 7))
    hidden, audio = drawn(1, 4 * 3, 8), drawn(1, 4, 5, 7)
    before = attention(hidden, audio)
    for frame in range(4):
        other = audio.clone()
        other[:, frame] += 1
        changed = (attention(hidden, other) != before).any(dim=-1)[0].reshape(4, 3)
        assert changed[frame].all()
        assert changed.sum() == 3, "tokens of another frame changed"


# One block


SPEAKERS = ["one speaker", "two speakers"]


@pytest.mark.parametrize(
    ("grid", "speaker_count"),
    [
        *itertools.product([(3, 2, 3), (2, 4, 1), (5, 2, 2)], SPEAKERS),
        ((1, 1, 1), "one speaker"),
    ],
    ids=str,
)
def test_block(grid: tuple[int, int, int], speaker_count: str) -> None:
    check_block(transformer, grid, speaker_count)


def check_block(
    module: Any, grid: tuple[int, int, int] = (3, 2, 3), speaker_count: str = "one speaker", width: int = 16
) -> None:
    heads, count, per_frame = 2, grid[0] * grid[1] * grid[2], grid[1] * grid[2]
    dim = heads * width
    block = with_random_weights(
        module.TalkingBlock(dim, 3 * dim, heads, "rms_norm_across_heads", True, 1e-6, dim, 7)
    )
    hidden, time, audio = drawn(1, count, dim), drawn(1, 6, dim), drawn(1, grid[0], 4, 7)
    image, text = drawn(1, 5, dim), drawn(1, TEXT, dim)
    angles = reference.angles_of_video(grid, width)
    masks = masks_of(speaker_count, per_frame)
    ours = block(hidden, torch.cat([image, text], dim=1), time, rotary_of(angles), audio, masks)
    context = reference.Context(
        text[0].numpy(),
        image[0].numpy(),
        time[0].numpy(),
        audio[0].numpy(),
        None if masks is None else masks.numpy(),
    )
    agree(ours[0], reference.block(weights_of(block), hidden[0].numpy(), context, angles, heads))


def rotary_of(angles: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """As diffusers has them: of each angle the cosine and the sine twice, (1, tokens, 1, width)."""
    twice = torch.from_numpy(np.repeat(angles, 2, axis=1)).unsqueeze(0).unsqueeze(2)
    return twice.cos(), twice.sin()


def masks_of(speaker_count: str, per_frame: int) -> torch.Tensor | None:
    if speaker_count == "one speaker":
        return None
    who = torch.arange(per_frame).clamp(max=2)  # of unlike sizes
    return torch.stack([who == speaker for speaker in range(3)]).double()


# The whole network


@pytest.mark.parametrize(
    ("shape", "speaker_count"),
    [
        *itertools.product([(3, 4, 6), (2, 8, 2), (5, 4, 4)], SPEAKERS),
        ((1, 2, 2), "one speaker"),
    ],
    ids=str,
)
def test_network(shape: tuple[int, int, int], speaker_count: str) -> None:
    check_network(transformer, shape, speaker_count)


def check_network(
    module: Any, shape: tuple[int, int, int] = (3, 4, 6), speaker_count: str = "one speaker", batch: int = 2
) -> None:
    network = with_random_weights(module.TalkingTransformer3DModel(**CONFIG))
    network.condition_embedder.timesteps_proj = Sinusoid()
    latents, inputs, extra = inputs_of(network, shape, speaker_count, batch)
    ours = network(latents, *inputs, **extra)
    assert ours.shape == (batch, CONFIG["out_channels"], *shape)
    time, text, image, audio = inputs
    for sample in range(batch):
        masks = extra["masks"]
        theirs = reference.network(
            weights_of(network),
            network.config,
            latents[sample].numpy(),
            float(time[sample]),
            text[sample].numpy(),
            image[sample].numpy(),
            audio[sample].numpy(),
            None if masks is None else masks.numpy(),
        )
        agree(ours[sample], theirs)


def inputs_of(
    network: Any, shape: tuple[int, int, int], speaker_count: str, batch: int
) -> tuple[Any, Any, Any]:
    config, per_frame = network.config, shape[1] * shape[2] // 4
    times = torch.tensor([1000.0, 123.4, 0.0], dtype=torch.float64)[:batch]
    audio_token_count = config.audio_tokens * (1 if speaker_count == "one speaker" else 2)
    masks = masks_of(speaker_count, per_frame)
    inputs = (
        times,
        drawn(batch, TEXT, config.text_dim),
        drawn(batch, 17, config.image_dim),
        drawn(batch, shape[0], audio_token_count, config.audio_dim),
    )
    return drawn(batch, config.in_channels, *shape), inputs, {"masks": masks}


class Sinusoid(torch.nn.Module):
    """The library computes it in float32: compared by itself, and left out of the tight comparison."""

    def forward(self, times: torch.Tensor) -> torch.Tensor:
        return torch.tensor(np.array([reference.sinusoid(float(time), CONFIG["freq_dim"]) for time in times]))


def test_time_is_embedded_as_in_the_reference() -> None:
    from diffusers.models.embeddings import Timesteps

    times = torch.tensor([1000.0, 123.4, 7.0, 0.0], dtype=torch.float64)
    ours = Timesteps(CONFIG["freq_dim"], flip_sin_to_cos=True, downscale_freq_shift=0)(times)
    np.testing.assert_allclose(ours.numpy(), Sinusoid()(times).numpy(), atol=2e-4)


def test_the_reference_attention_is_not_computed_with_one_speaker(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*inputs: Any) -> Any:
        calls.append(1)
        return speakers.reference_attention(*inputs)

    monkeypatch.setattr(transformer, "reference_attention", counted)
    for speaker_count, wanted in (("one speaker", 0), ("two speakers", CONFIG["num_layers"])):
        calls.clear()
        check_network(transformer, speaker_count=speaker_count, batch=1)
        assert len(calls) == wanted, speaker_count


def test_rows_of_the_reference_attention_are_cut_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, masks = drawn(1, 11, 2, 8), drawn(1, 4, 2, 8), torch.eye(3, 4, dtype=torch.float64)
    whole = speakers.reference_attention(query, key, masks)
    monkeypatch.setattr(speakers, "ROWS", 3)
    torch.testing.assert_close(speakers.reference_attention(query, key, masks), whole, rtol=1e-12, atol=1e-14)


# Mutants


MUTANTS: list[tuple[str, ModuleType, str, str]] = [
    (
        "keys and values swapped",
        transformer,
        "key_value[:, :, 0], key_value[:, :, 1]",
        "key_value[:, :, 1], key_value[:, :, 0]",
    ),
    (
        "heads before key and value",
        transformer,
        "tokens, 2, self.heads, -1)",
        "tokens, self.heads, 2, -1).transpose(2, 3)",
    ),
    ("keys are not turned", transformer, "key = rotated(key, audio_positions)", "pass"),
    ("voices in turns", transformer, "repeat_interleave(each)", "repeat(each)"),
    (
        "the voice without its norm",
        transformer,
        "normed = self.norm_x(hidden.float()).type_as(hidden)",
        "normed = hidden",
    ),
    (
        "another eps",
        transformer,
        "FP32LayerNorm(dim, eps=1e-6, elementwise_affine=True)",
        "FP32LayerNorm(dim, eps=1e-5, elementwise_affine=True)",
    ),
    (
        "the voice replaces",
        transformer,
        "hidden = hidden + self.audio_cross_attn",
        "hidden = self.audio_cross_attn",
    ),
    (
        "the feed-forward with the attention's gate",
        transformer,
        "self.ffn(normed).float() * ff_gate",
        "self.ffn(normed).float() * gate",
    ),
    (
        "text before image",
        transformer,
        "torch.cat([image, text], dim=1)",
        "torch.cat([text, image], dim=1)",
    ),
    (
        "the last shift for the scale",
        transformer,
        "shift, scale = (self.scale_shift_table",
        "scale, shift = (self.scale_shift_table",
    ),
    (
        "height and width of a patch swapped",
        transformer,
        "permute(0, 7, 1, 4, 2, 5, 3, 6)",
        "permute(0, 7, 1, 4, 2, 6, 3, 5)",
    ),
    ("the map's keys at other places", transformer, "_turned(key, at_first), masks)", "key, masks)"),
    (
        "the map's turn backwards",
        transformer,
        "even * sin + odd * cos], dim=-1)",
        "odd * cos - even * sin], dim=-1)",
    ),
    (
        "halves turned, not pairs",
        speakers,
        "even, odd = states.float()[..., 0::2], states.float()[..., 1::2]",
        "even, odd = states.float().chunk(2, dim=-1)",
    ),
    ("turned backwards, nearly", speakers, "odd * cos + even * sin", "odd * cos - even * sin"),
    (
        "another speaker's range",
        speakers,
        "_between(attention[speaker], *RANGES[speaker])",
        "_between(attention[speaker], *RANGES[0])",
    ),
    ("masks of any size weigh alike", speakers, "masks / sizes.unsqueeze(1)", "masks"),
    ("the least decides", speakers, "attention.argmax(", "attention.argmin("),
    ("the wrong middle row", audio_tokens, "groups[:, :, 1:-1, half]", "groups[:, :, 1:-1, 0]"),
    ("trailing rows first", audio_tokens, "groups[:, :, 0, : half + 1]", "groups[:, :, 0, half:]"),
    (
        "no second ReLU",
        audio_tokens,
        "self.proj3(self.proj2(hidden).relu())",
        "self.proj3(self.proj2(hidden))",
    ),
    (
        "one projection for all",
        audio_tokens,
        "self.proj1(first.flatten(2)).relu()",
        "self.proj1(first.flatten(2))",
    ),
    (
        "the window is clamped at the audio's end",
        audio_tokens,
        "mirrored(max(frame + offset, 0), length)",
        "min(max(frame + offset, 0), length - 1)",
    ),
    (
        "the window begins at the chunk",
        audio_tokens,
        "max(frame + offset, 0)",
        "max(frame + offset, chunk.first)",
    ),
    ("the window looks back only", audio_tokens, "range(-half, half + 1)", "range(-half - 1, half)"),
]


@pytest.mark.parametrize(("module", "old", "new"), [pytest.param(*rest, id=name) for name, *rest in MUTANTS])
def test_mutant_is_killed(module: ModuleType, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = mutant(module, old, new)
    if module is speakers:
        for name in ("rotated", "reference_attention", "positions_from_attention"):
            monkeypatch.setattr(transformer, name, getattr(broken, name))
        broken = transformer
    for check in CHECKS[module.__name__.rpartition(".")[2]]:
        try:
            check(broken)
        except (AssertionError, RuntimeError):
            return
    pytest.fail("no check notices this mutant")


def _two_speakers(module: Any) -> None:
    check_audio_attention(module, two=True)


def _masks(module: Any) -> None:
    check_network(module, speaker_count="two speakers", batch=1)


def _middle_chunk(module: Any) -> None:
    check_windower(module, Chunk(2, 24, 17, 5, 11), 38)


CHECKS: dict[str, list[Callable[[Any], None]]] = {
    "transformer": [check_audio_attention, _two_speakers, check_block, check_network, _masks],
    "speakers": [_two_speakers, _masks],
    "tokens": [check_projector, _middle_chunk],
}


@pytest.mark.parametrize("module", [transformer, speakers, audio_tokens], ids=lambda module: module.__name__)
def test_the_original_lives(module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    for check in CHECKS[name]:
        check(transformer if module is speakers else module)


# Against diffusers' own


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_without_its_ear_it_is_diffusers_transformer_bit_for_bit(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # in the dtypes that are used
    network = with_random_weights(transformer.TalkingTransformer3DModel(**CONFIG)).to(dtype)
    for block in network.blocks:
        block.audio_cross_attn.proj.weight.zero_()
        block.audio_cross_attn.proj.bias.zero_()
    known = {name: value for name, value in CONFIG.items() if not name.startswith("audio_")}
    wan = WanTransformer3DModel(**known).to(dtype).eval()
    wan.load_state_dict(
        {name: value for name, value in network.state_dict().items() if name in wan.state_dict()}
    )
    latents, inputs, _ = inputs_of(network, (3, 4, 6), "one speaker", 2)
    latents, time, text, image, audio = (value.to(dtype) for value in (latents, *inputs))
    ours = network(latents, time, text, image, audio)
    theirs = wan(latents, time, text, image, return_dict=False)[0]
    assert ours.float().std() > 1e-3
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_time_and_the_last_layer_are_float32_whatever_the_rest_is(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are kept in a GPU's number format: modulation to the last bit, and velocities not rounded."""
    monkeypatch.undo()
    whole = with_random_weights(transformer.TalkingTransformer3DModel(**CONFIG)).float()
    half = copy.deepcopy(whole)
    for name, parameter in half.named_parameters():
        parameter.data = parameter.data.to(torch.float32 if kept_in_float32(name) else dtype)
    assert half.dtype == dtype
    steered: list[torch.Tensor] = []
    for network in (whole, half):
        network.blocks[0].register_forward_pre_hook(lambda module, inputs: steered.append(inputs[2]))
    latents, inputs, _ = inputs_of(whole, (3, 4, 6), "one speaker", 2)
    time, *rest = inputs
    out = [
        network(latents.to(network.dtype), time.float(), *(value.to(network.dtype) for value in rest))
        for network in (whole, half)
    ]
    assert torch.equal(*steered)
    assert [one.dtype for one in out] == [torch.float32] * 2
    assert not torch.equal(out[1], out[1].to(dtype).float())
    error = (out[1] - out[0]).std() / out[0].std()
    assert error < 0.05


def test_with_its_ear_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    network = with_random_weights(transformer.TalkingTransformer3DModel(**CONFIG))
    latents, inputs, _ = inputs_of(network, (3, 4, 6), "one speaker", 1)
    time, text, image, audio = inputs
    with_audio, silent = (
        network(latents, time, text, image, each) for each in (audio, torch.zeros_like(audio))
    )
    assert (with_audio - silent).abs().mean() > 1e-3
