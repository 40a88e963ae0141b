"""InfiniteTalk behind the interface of talking videos: its loaded parts, and the profile they run with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.models.interface import VideoFrames, VideoParameters, VideoStep
from stoker.models.talking_video import loading
from stoker.models.talking_video.pipeline import Scene, Step, encode_scene, generate
from stoker.models.talking_video.sampling.chunks import count
from stoker.models.talking_video.sampling.profiles import PROFILES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class InfiniteTalk:
    """`parts` are the networks; `profile` is how many steps and forwards they take, and in which chunks."""

    def __init__(self, folder: Path, device: str, profile: str = "exact") -> None:
        """Raises the same as `loading.load`."""
        self.profile = PROFILES[profile]
        self.parts = loading.load(folder, device, self.profile)

    @property
    def shrink(self) -> int:
        return self.profile.shrink

    @property
    def refused(self) -> Mapping[str, str]:
        return self.parts.refused

    def generate(
        self,
        parameters: VideoParameters,
        on_step: Callable[[VideoStep], None],
        go_on: Callable[[], bool],
    ) -> Iterator[VideoFrames]:
        """Raises sampling.Stopped when `go_on` returns False, and what `on_step` raises."""
        from stoker.models.talking_video.audio.speech import EncodedSpeech

        scene = self._scene(parameters.prompt, parameters.image)
        speech = EncodedSpeech(self.parts.speech_encoder, parameters.samples, parameters.frames)
        chunks = count(speech.frames, self.profile.shape)

        def report(step: Step) -> bool:
            on_step(VideoStep(step.chunk.index + 1, chunks, step.number, step.of))
            return go_on()

        size, seed = parameters.size, parameters.seed
        for frames in generate(self.parts, scene, speech, self.profile, size, seed, report, go_on):
            last = frames.first + len(frames.pixels) == frames.chunk.output.stop
            yield VideoFrames(frames.first, frames.pixels, ends_chunk=last)

    def _scene(self, prompt: str, image: NDArray[np.uint8]) -> Scene:
        import torch

        frame = torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 127.5 - 1.0
        return encode_scene(self.parts, prompt, frame)
