"""`talk-mini`: makes the caller's picture speak, on a CPU, faster than it is played.

    image ──> face mesh ──> measures ────────────────────────────┐
    audio ──> visemes, where a voice is ──> mouth in each frame ─┼──> one frame after the other
    seed  ──> blinks, small turns of the head ───────────────────┘

Nothing is drawn but the inside of the mouth and closed lids: all else is the caller's image, moved. The
prompt has no effect. The video is of the interface's size, and the same image, audio and seed give the same
bytes. Nothing heavy is imported until it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from stoker.models.interface import VideoFrames, VideoParameters, VideoStep
from stoker.models.talking_video.sampling.chunks import FPS
from stoker.worker import HandlerError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stoker.models.talking_video.portrait.drawing import Pose
    from stoker.models.talking_video.portrait.landmarks import Face


VISEMES: Final = "visemes.safetensors"
SIDE_MOST: Final = 0.62
"""A face that is turned further shows half a mouth."""

GROUP, THREADS = 5, 2
"""Frames that are drawn before they are passed on, and how many at once."""

SILENT: Final = 1e-4
"""The deviation of samples under which there is no speech."""


class TalkMini:
    """A `TalkingVideoPipeline`; a chunk of it is one second. It runs on the CPU, whatever the device."""

    shrink: Final = 1
    refused: Mapping[str, str] = MappingProxyType({})

    def __init__(self, folder: Path, device: str) -> None:
        from stoker.models.talking_video.portrait.landmarks import FaceFinder
        from stoker.models.talking_video.portrait.visemes import read

        self._finder = FaceFinder(folder)
        self._network = read(folder / VISEMES)

    def generate(
        self,
        parameters: VideoParameters,
        on_step: Callable[[VideoStep], None],
        go_on: Callable[[], bool],
    ) -> Iterator[VideoFrames]:
        """Raises HandlerError for a face in profile, and for an image without a face, unless the caller has
        one assumed."""
        import torch

        from stoker.models.talking_video.portrait.drawing import Portrait
        from stoker.models.talking_video.portrait.geometry import measured

        face = self._face(parameters.image, assumed=parameters.assume_face)
        portrait = Portrait(parameters.image, measured(face, parameters.image))
        poses = self._poses(parameters)
        chunks = -(-len(poses) // FPS)
        notes = {"face": "assumed"} if face.assumed else {}
        with ThreadPoolExecutor(THREADS) as pool:
            for first in range(parameters.begun, len(poses), GROUP):
                if not go_on():
                    return
                pixels = torch.stack(list(pool.map(portrait.draw, poses[first : first + GROUP])))
                number = first % FPS // GROUP + 1
                on_step(VideoStep(first // FPS + 1, chunks, number, FPS // GROUP))
                last = number == FPS // GROUP or first + GROUP >= len(poses)
                state = b"" if last else None  # no frame depends on those before it
                yield VideoFrames(first, pixels, ends_chunk=last, notes=notes, state=state)

    def _face(self, pixels: NDArray[np.uint8], *, assumed: bool) -> Face:
        from stoker.models.talking_video.portrait.geometry import measured
        from stoker.models.talking_video.portrait.landmarks import assumed_face

        found = self._finder.find(pixels)
        if found is not None and not measured(found, pixels).marked:
            found = None
        if found is None and not assumed:
            raise HandlerError(
                "Invalid image: no face was found in it. Use an image in which a face is seen from the front;"
                ' with "face": "assume" the mouth of a drawing moves, or of an average face in the middle'
            )
        found = found or assumed_face(pixels)
        if found.side > SIDE_MOST:
            raise HandlerError(
                "Invalid image: the face is seen from the side, and its mouth cannot be moved. Use an image"
                " in which both eyes are seen"
            )
        return found

    def _poses(self, parameters: VideoParameters) -> list[Pose]:
        import numpy as np

        from stoker.models.talking_video.portrait.drawing import Pose
        from stoker.models.talking_video.portrait.motion import motion
        from stoker.models.talking_video.portrait.shapes import mouth_shapes
        from stoker.models.talking_video.portrait.visemes import visemes
        from stoker.models.talking_video.portrait.voice import voiced

        samples, frames = parameters.samples, parameters.frames
        shapes = np.zeros((frames, 2), np.float32)
        if samples.deviation > SILENT:
            found = visemes(self._network, samples.values, samples.mean, samples.deviation)
            heard = voiced(samples.values, samples.mean, samples.deviation)
            shapes = mouth_shapes(found * heard[:, None], frames)
        other = motion(parameters.seed, frames)
        columns = (shapes[:, 0], shapes[:, 1], other.closed, other.turn, other.right, other.down)
        return [Pose(*map(float, row)) for row in zip(*columns, strict=True)]
