"""What the network hears: the layers of a speech encoder, 25 times a second.

    samples (16 kHz, mono, on disk) ── a stretch around what is asked ──> convolutions (50 a second)
        ── interpolated to 25 a second ──> the encoder's layers ──> (frames, layers, width)

A stretch reaches `behind_s` back and `ahead_s` forward of what is asked for, so memory is bounded however
long the audio is, and what is said later than that changes nothing earlier. Level and offset are those of
the whole audio, measured once, for the encoder's own norm over time too: a stretch that is quiet beside the
rest stays quiet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from stoker.models.talking_video.chunks import FPS

__all__ = ["RATE", "EncodedSpeech", "Samples", "Speech", "Stretch", "TwoVoices", "layers_of"]

RATE: Final = 16_000
PER_FRAME: Final = RATE // FPS

FAINTEST: Final = 1e-3
"""A stretch is taken to be no fainter beside the whole: what is silent has no level to divide by."""


class Speech(Protocol):
    """What a video is spoken to. `frames` is how many it has."""

    @property
    def frames(self) -> int: ...

    def features(self, first: int, last: int) -> torch.Tensor:
        """Of audio frames first to last, exclusive: (last - first, layers, width), float32."""


@dataclass(frozen=True, slots=True)
class TwoVoices:
    """What two people say at the same time, the first and the second of a scene's masks. Who is silent is
    given silence: both are of the same length."""

    first: Speech
    second: Speech

    def __post_init__(self) -> None:
        if self.first.frames != self.second.frames:
            lengths = f"{self.first.frames} and {self.second.frames}"
            raise ValueError(f"two voices must be equally long; they have {lengths} frames")

    @property
    def frames(self) -> int:
        return self.first.frames


@dataclass(frozen=True, slots=True)
class Samples:
    """Mono at 16 kHz, an array that may lie on disk; `mean` and `deviation` are those of all of it."""

    values: NDArray[np.float32]
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """How far around what is asked for the encoder listens, in seconds."""

    behind_s: float = 10.0
    ahead_s: float = 1.0

    def around(self, first: int, last: int, frames: int) -> tuple[int, int]:
        """The audio frames that are encoded for first to last."""
        begin = max(0, first - round(self.behind_s * FPS))
        return begin, min(frames, last + round(self.ahead_s * FPS))


class EncodedSpeech:
    """Speech by a wav2vec2 encoder of transformers, on its device. Whether it was trained on waves of unit
    variance or as they are is told by `do_normalize`, of its own preprocessor's configuration."""

    def __init__(self, encoder: Any, samples: Samples, frames: int, stretch: Stretch = Stretch()) -> None:
        self._encoder, self._samples, self._stretch = encoder, samples, stretch
        self.frames = frames

    def features(self, first: int, last: int) -> torch.Tensor:
        begin, end = self._stretch.around(first, last, self.frames)
        heard = np.array(self._samples.values[begin * PER_FRAME : end * PER_FRAME])
        normal = (heard - self._samples.mean) / max(self._samples.deviation, 1e-7)
        given = normal if getattr(self._encoder.config, "do_normalize", True) else heard
        wave = torch.from_numpy(given.astype(np.float32)).unsqueeze(0)
        level = float(np.sqrt(np.square(normal, dtype=np.float64).mean()))
        layers = layers_of(self._encoder, wave.to(self._encoder.device), end - begin, level)
        return layers[first - begin : last - begin]


def layers_of(encoder: Any, wave: torch.Tensor, frames: int, level: float = 1.0) -> torch.Tensor:
    """Every layer's output for a wave (1, samples): (frames, layers, width), float32. `level`: how loud this
    stretch is beside the whole audio.

    Convolutions need 400 samples at least: a shorter wave is followed by silence. Interpolation keeps the
    first and the last of their outputs where they are (`align_corners`), as the adapter was trained.
    """
    wave = torch.nn.functional.pad(wave, (0, max(0, 400 - wave.shape[1])))
    with _as_loud_as_in_the_whole(encoder, max(level, FAINTEST)):
        sounds = encoder.feature_extractor(wave.to(encoder.dtype)).float()
    sounds = torch.nn.functional.interpolate(sounds, size=frames, mode="linear", align_corners=True)
    hidden, _ = encoder.feature_projection(sounds.transpose(1, 2).to(encoder.dtype))
    outputs: list[torch.Tensor] = []
    hooks = [layer.register_forward_hook(_keep(outputs)) for layer in encoder.encoder.layers]
    try:
        encoder.encoder(hidden)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack([output[0] for output in outputs], dim=1).float()


@contextlib.contextmanager
def _as_loud_as_in_the_whole(encoder: Any, level: float) -> Iterator[None]:
    """The first convolution's channels are normed over all that the encoder is given (a GroupNorm of a group
    for each). Given a stretch, that would make a pause as loud as speech, and speech would be heard in its
    noise. So the stretch's deviations are those that the whole has if it sounds alike: at `level` 1."""

    def normed(norm: Any, given: Any, output: torch.Tensor) -> torch.Tensor:
        sounds = given[0].float()
        variance, mean = torch.var_mean(sounds, dim=-1, correction=0, keepdim=True)
        alike = (sounds - mean) * torch.rsqrt(variance / level**2 + norm.eps)
        out: torch.Tensor = alike * norm.weight.unsqueeze(-1) + norm.bias.unsqueeze(-1)
        return out.to(output.dtype)

    norms = [part for part in encoder.feature_extractor.modules() if isinstance(part, torch.nn.GroupNorm)]
    hooks = [norm.register_forward_hook(normed) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _keep(outputs: list[torch.Tensor]) -> Any:
    """A call of a part of the model records nothing by itself any more (transformers 5)."""

    def hook(module: object, given: object, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    return hook
