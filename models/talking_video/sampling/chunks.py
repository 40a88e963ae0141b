"""The plan of a long video: which frames each chunk makes, shares with the one before, and gives out.

Pure: numbers in, numbers out. The model makes `frames` frames at once, always 4n+1 of them (its autoencoder
turns the first frame into one latent and every four after it into one more). A chunk begins with the last
`motion` frames of the one before, so the video goes on where it was:

    chunk 0   |=========================|
    chunk 1                      |mmmmm=========================|
    chunk 2                                               |mmmmm=======......|
                                                                       ^ the audio's end: what is beyond
                                                                         is made, and not given out

Every frame of the video is given out by exactly one chunk, and frame i of the video hears frame i of the
audio, however many chunks there were before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "FPS",
    "STRIDE",
    "Chunk",
    "ChunkShape",
    "count",
    "fits_latents",
    "fitting",
    "latents_of",
    "mirrored",
    "plan",
    "video_frames",
]

FPS = 25
"""The audio encoder's and the video's rate; any other would let the lips drift."""

STRIDE = 4
"""Frames that one latent stands for, after the first."""


def fits_latents(frames: int) -> bool:
    return frames >= 1 and frames % STRIDE == 1


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """`frames` are made at once, `motion` of them known from before. Both are 4n+1.

    `whole_tail`: the last chunk is as long as the others, beyond the end of the audio. This is what the
    model was trained on, and keeps the shapes that were compiled; without it the last one is just long
    enough."""

    frames: int = 81
    motion: int = 9
    whole_tail: bool = True

    def __post_init__(self) -> None:
        for name in ("frames", "motion"):
            if not fits_latents(getattr(self, name)):
                raise ValueError(f"{name} must be 4n+1; got {getattr(self, name)}")
        if self.motion >= self.frames:
            raise ValueError(f"motion must be less than frames; got {self.motion} of {self.frames}")

    @property
    def step(self) -> int:
        """New frames of each chunk after the first."""
        return self.frames - self.motion


@dataclass(frozen=True, slots=True)
class Chunk:
    """Frames `first` to `first + frames` of the video; those from `first + known` on are new, and the first
    `new` of these are given out."""

    index: int
    first: int
    frames: int
    known: int
    new: int

    @property
    def latents(self) -> int:
        return latents_of(self.frames)

    @property
    def given(self) -> range:
        """The frames of the video that it gives out."""
        return range(self.first + self.known, self.first + self.known + self.new)


def video_frames(samples: int, rate: int) -> int:
    """`floor(seconds * 25)`, in integers: a float would lose a frame now and then."""
    return samples * FPS // rate


def plan(total: int, shape: ChunkShape = ChunkShape()) -> Iterator[Chunk]:
    """The chunks of a video of `total` frames, at least one."""
    if total < 1:
        raise ValueError(f"a video has at least one frame; got {total}")
    index = first = known = 0
    while True:
        missing = total - first - known
        whole = shape.whole_tail or known + missing >= shape.frames
        frames = shape.frames if whole else fitting(known + missing)
        new = min(frames - known, missing)
        yield Chunk(index, first, frames, known, new)
        if new == missing:
            return
        index, first, known = index + 1, first + shape.step, shape.motion


def count(total: int, shape: ChunkShape = ChunkShape()) -> int:
    """How many chunks `plan` gives."""
    return 1 + max(0, -(-(total - shape.frames) // shape.step))


def fitting(frames: int) -> int:
    """The least 4n+1 that is not below."""
    return frames + (1 - frames) % STRIDE


def latents_of(frames: int) -> int:
    return (frames - 1) // STRIDE + 1


def mirrored(index: int, length: int) -> int:
    """Which of `length` audio frames stands for frame `index`: beyond the end they are played backwards, and
    forwards again. The ends are repeated: ... 1 0 | 0 1 2 | 2 1 0 | 0 1 ..."""
    index %= 2 * length
    return index if index < length else 2 * length - 1 - index
