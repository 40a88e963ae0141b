"""InfiniteTalk behind the interface of talking videos: its parts, how they sample, and their speed-ups."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from stoker.models.interface import ImageDefaults, VideoFrames, VideoParameters, VideoStep
from stoker.models.speed_ups import block_compile, profiles
from stoker.models.speed_ups.speed_up import Loaded, NotHere
from stoker.models.talking_video import loading
from stoker.models.talking_video.pipeline import (
    Scene,
    Step,
    code_once,
    encode_prompts,
    encode_scene,
    generate,
    run_once,
)
from stoker.models.talking_video.sampling.chunks import count
from stoker.models.talking_video.sampling.schedule import Projection, forwards
from stoker.models.talking_video.sampling.settings import SETTINGS
from stoker.models.talking_video.video.sizes import BUCKETS, Bucket

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray


class InfiniteTalk:
    """The pipeline of InfiniteTalk. `parts` are the networks; `settings` say how many steps and forwards they
    take, and in which chunks."""

    has_profiles: ClassVar[bool] = True

    def __init__(
        self, folder: Path, device: str, sampling: str = "published", profile: str = profiles.EXACT
    ) -> None:
        """Raises the same as `loading.load`, and ValueError for an unknown profile."""
        self.settings, self.profile = SETTINGS[sampling], profile
        small = profiles.AT_LOAD in profiles.names(profile)
        self.parts = loading.load(folder, device, self.settings, small=small)
        self.speed_ups: Mapping[str, str] = {profiles.AT_LOAD: "weights in float8"} if small else {}
        self.left_out: Mapping[str, str] = {}
        self.encode_prompt: Callable[[Sequence[str]], tuple[torch.Tensor, ...]] = functools.partial(
            encode_prompts, self.parts
        )

    def warm(self, sizes: Sequence[tuple[int, int]], defaults: ImageDefaults) -> None:
        """Applies the other speed-ups of the profile. On a GPU the network and the autoencoder run once for
        each size that is not refused."""
        warmed = sorted(
            (size for size in sizes if not self._is_refused(*size)), key=lambda size: -size[0] * size[1]
        )
        examples = {
            f"{width}x{height}": functools.partial(run_once, self.parts.network, self.settings, width, height)
            for width, height in warmed
        }
        loaded = Loaded(
            network=self.parts.network,
            vae=None,
            device=self.parts.device,
            pipe=self,
            steps=self.settings.steps,
            examples=examples,
            cache=block_compile.cache_folder(),
        )
        rest = [name for name in profiles.names(self.profile) if name != profiles.AT_LOAD]
        applied = profiles.apply(rest, loaded)
        self.speed_ups, self.left_out = {**self.speed_ups, **applied.done}, applied.left_out
        if loaded.on_gpu:
            for (width, height), example in zip(warmed, examples.values(), strict=True):
                if "block-compile" not in self.speed_ups:
                    example()
                code_once(self.parts.autoencoder, self.settings, width, height, self.parts.device)

    def _is_refused(self, width: int, height: int) -> bool:
        names = [name for name, buckets in BUCKETS.items() if Bucket(height, width) in buckets]
        return any(name in self.refused for name in names)

    def project_guidance(self) -> str:
        """Projects the guidance from now on (see `sampling.projected_guidance`). Raises NotHere where there
        is none."""
        if len(forwards(self.settings.guidance)) == 1:
            raise NotHere("the pipeline has no guidance")
        projection = Projection()
        self.settings = replace(
            self.settings, guidance=replace(self.settings.guidance, projection=projection)
        )
        return f"momentum {projection.momentum:g}, norm at most {projection.norm_most:g}"

    @property
    def shrink(self) -> int:
        return self.settings.shrink

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
        chunks = count(speech.frames, self.settings.shape)

        def report(step: Step) -> bool:
            on_step(VideoStep(step.chunk.index + 1, chunks, step.number, step.of))
            return go_on()

        size, seed = parameters.size, parameters.seed
        known = self._known(parameters.state)
        made = generate(
            self.parts, scene, speech, self.settings, size, seed, report, go_on, parameters.begun, known
        )
        compiled = "block-compile" in self.speed_ups
        with contextlib.closing(made):
            while True:
                with block_compile.settled(compiled=compiled):  # not while the caller has the frames
                    frames = next(made, None)
                if frames is None:
                    return
                last = frames.first + len(frames.pixels) == frames.chunk.output.stop
                state = _state(frames.known)
                yield VideoFrames(frames.first, frames.pixels, ends_chunk=last, state=state)

    def _known(self, state: bytes) -> torch.Tensor | None:
        """Returns the latents with which an earlier attempt's next chunk begins; None: there is none."""
        from safetensors import torch as safetensors

        return safetensors.load(state)["known"].to(self.parts.device) if state else None

    def _scene(self, prompt: str, image: NDArray[np.uint8]) -> Scene:
        import torch

        frame = torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 127.5 - 1.0
        return encode_scene(self.parts, prompt, frame, texts=self.encode_prompt)


def _state(known: torch.Tensor | None) -> bytes | None:
    from safetensors import torch as safetensors

    return None if known is None else safetensors.save({"known": known.cpu().contiguous()})
