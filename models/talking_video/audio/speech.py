"""Audio, encoded for the network: the outputs of a speech encoder's layers, 25 times a second.

    samples (16 kHz, mono, on disk) ── all of them, or a stretch ──> convolutions (50 a second)
        ── interpolated to 25 a second ──> the encoder's layers ──> (frames, layers, width)

Audio of up to two minutes is encoded at once and longer audio in stretches (see `stretches`), so memory is
bounded whatever the length, and sound after a stretch changes nothing before it. The features of at most two
stretches are kept for the chunks that need them. Level and offset are measured once over the whole audio,
also for the encoder's own norm over time: a stretch that is quieter than the rest stays quiet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from stoker.models.talking_video.audio.stretches import DEFAULT, Stretch, Stretches
from stoker.models.talking_video.sampling.chunks import FPS

RATE: Final = 16_000
PER_FRAME: Final = RATE // FPS

FAINTEST: Final = 1e-3
"""The smallest level of a stretch relative to the whole: silence has no level to divide by."""

BLOCK: Final = 10 * RATE
"""Samples that the convolutions take at a time."""

KEPT: Final = 2
"""Stretches whose features are kept."""


class Speech(Protocol):
    """The audio features that a video is made from. `frames` is their number."""

    @property
    def frames(self) -> int: ...

    def features(self, first: int, last: int) -> torch.Tensor:
        """Returns the features of audio frames first to last, exclusive: (last - first, layers, width),
        float32."""


@dataclass(frozen=True, slots=True)
class TwoSpeakers:
    """The audio of two speakers at the same time, in the order of a scene's masks. Both have the same length:
    while one speaker is silent, that audio is silence."""

    first: Speech
    second: Speech

    def __post_init__(self) -> None:
        if self.first.frames != self.second.frames:
            lengths = f"{self.first.frames} and {self.second.frames}"
            raise ValueError(f"the audio of two speakers must be equally long; it has {lengths} frames")

    @property
    def frames(self) -> int:
        return self.first.frames


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of audio, mono at 16 kHz, in an array that may be on disk; `mean` and `deviation` are those of
    the whole array."""

    values: NDArray[np.float32]
    mean: float
    deviation: float


class EncodedSpeech:
    """The features of a wav2vec2 encoder of transformers, on its device. `do_normalize`, from the
    configuration of its preprocessor, says whether it was trained on waves of unit variance or on waves as
    they are."""

    def __init__(self, encoder: Any, samples: Samples, frames: int, stretches: Stretches = DEFAULT) -> None:
        self._encoder, self._samples, self._stretches = encoder, samples, stretches
        self._features: dict[Stretch, torch.Tensor] = {}
        self.frames = frames

    def features(self, first: int, last: int) -> torch.Tensor:
        parts = []
        for stretch in self._stretches.over(first, last, self.frames):
            if stretch not in self._features:
                self._forget()
                self._features[stretch] = self._encoded(stretch)
            features = self._features[stretch]
            parts.append(features[max(first - stretch.first, 0) : last - stretch.first])
        return torch.cat(parts)

    def _forget(self) -> None:
        """Drops all stretches but the latest. A chunk may begin in one stretch and end in the next, and so
        may the chunk after it."""
        for stretch in list(self._features)[: 1 - KEPT]:
            del self._features[stretch]

    def _encoded(self, stretch: Stretch) -> torch.Tensor:
        """Returns the features of a stretch, on the CPU."""
        samples = np.array(self._samples.values[stretch.begin * PER_FRAME : stretch.end * PER_FRAME])
        normal = (samples - self._samples.mean) / max(self._samples.deviation, 1e-7)
        values = normal if getattr(self._encoder.config, "do_normalize", True) else samples
        wave = torch.from_numpy(values.astype(np.float32)).unsqueeze(0)
        level = float(np.sqrt(np.square(normal, dtype=np.float64).mean()))
        frames = stretch.end - stretch.begin
        layers = layers_of(self._encoder, wave.to(self._encoder.device), frames, level)
        return layers[stretch.first - stretch.begin : stretch.last - stretch.begin].cpu()


def layers_of(encoder: Any, wave: torch.Tensor, frames: int, level: float = 1.0) -> torch.Tensor:
    """Returns every layer's output for a wave (1, samples): (frames, layers, width), float32. `level`: how
    loud this stretch is relative to the whole audio.

    The convolutions need at least 400 samples: a shorter wave is padded with silence. Interpolation keeps the
    first and the last output in place (`align_corners`), as the adapter was trained.
    """
    wave = torch.nn.functional.pad(wave, (0, max(0, 400 - wave.shape[1])))
    sounds = _sounds(encoder, wave.to(encoder.dtype), max(level, FAINTEST))
    sounds = torch.nn.functional.interpolate(sounds, size=frames, mode="linear", align_corners=True)
    hidden, _ = encoder.feature_projection(sounds.transpose(1, 2).to(encoder.dtype))
    outputs: list[torch.Tensor] = []
    hooks = [layer.register_forward_hook(_recorder(outputs)) for layer in encoder.encoder.layers]
    try:
        encoder.encoder(hidden)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack([output[0] for output in outputs], dim=1).float()


def _sounds(encoder: Any, wave: torch.Tensor, level: float) -> torch.Tensor:
    """Returns the output of the convolutions for a wave, (1, channels, positions). They process a block at a
    time, since the first convolution's output takes a hundred times the memory of its input. The joined
    blocks equal the output for the whole wave."""
    layers = encoder.feature_extractor.conv_layers
    with _normed_over(layers[0], wave, level):
        parts = [
            encoder.feature_extractor(block).float()
            for block in _blocks(wave, [layer.conv for layer in layers])
        ]
    return torch.cat(parts, dim=2)


def _blocks(wave: torch.Tensor, convolutions: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Yields the parts of a wave for which these convolutions, one after the other, return the consecutive
    parts of their output for the whole wave."""
    span, step = 1, 1
    for one in convolutions:
        span, step = span + (one.kernel_size[0] - 1) * step, step * one.stride[0]
    positions, at_once = (wave.shape[1] - span) // step + 1, BLOCK // step
    for first in range(0, positions, at_once):
        last = min(first + at_once, positions)
        yield wave[:, first * step : (last - 1) * step + span]


@contextlib.contextmanager
def _normed_over(layer: Any, wave: torch.Tensor, level: float) -> Iterator[None]:
    """Normalizes the first convolution's channels as if over the whole audio at `level` 1.

    The encoder normalizes each channel over all of its input (a GroupNorm with a group for each channel). For
    a stretch that would make a pause as loud as speech, and its noise would look like speech.
    """
    if not isinstance(layer.layer_norm, torch.nn.GroupNorm):
        yield
        return
    mean, variance = _spread(layer.conv, wave)

    def normed(norm: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        scaled = (inputs[0].float() - mean) * torch.rsqrt(variance / level**2 + norm.eps)
        out: torch.Tensor = scaled * norm.weight.unsqueeze(-1) + norm.bias.unsqueeze(-1)
        return out.to(output.dtype)

    hook = layer.layer_norm.register_forward_hook(normed)
    try:
        yield
    finally:
        hook.remove()


def _spread(convolution: Any, wave: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and variance of each channel over a whole wave, (1, channels, 1), block by block (Chan,
    Golub and LeVeque, 1979)."""
    count, mean, squares = 0, torch.zeros((), device=wave.device), torch.zeros((), device=wave.device)
    for block in _blocks(wave, [convolution]):
        sounds = convolution(block.unsqueeze(1)).float()
        variance, here = torch.var_mean(sounds, dim=-1, correction=0, keepdim=True)
        more, apart = sounds.shape[-1], here - mean
        squares = squares + variance * more + apart**2 * (count * more / (count + more))
        count += more
        mean = mean + apart * (more / count)
    return mean, squares / count


def _recorder(outputs: list[torch.Tensor]) -> Any:
    """Returns a hook that appends a layer's output. Since transformers 5, a part of a model that is called by
    itself does not record its layers' outputs."""

    def hook(module: object, inputs: object, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    return hook
