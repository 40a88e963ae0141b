"""The plan of a long video: which frames each chunk generates, shares with the chunk before, and outputs.

Pure: numbers in, numbers out. The model generates `frames` frames at once, always 4n+1 of them (its
autoencoder turns the first frame into one latent and every four after it into one more). A chunk begins with
the last `motion` frames of the chunk before, so the motion continues:

    chunk 0   |=========================|
    chunk 1                      |mmmmm=========================|
    chunk 2                                               |mmmmm=======......|
                                                                       ^ the audio's end: frames beyond it
                                                                         are generated, but not output

Exactly one chunk outputs each frame of the video, and frame i of the video is generated from frame i of the
audio, however many chunks there were before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FPS = 25
"""The rate of the audio features and of the video; with any other the lips would drift."""

STRIDE = 4
"""Frames for each latent after the first."""


def fits_latents(frames: int) -> bool:
    return frames >= 1 and frames % STRIDE == 1


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """The shape of chunks: `frames` are generated at once, `motion` of them known from the chunk before. Both
    are 4n+1.

    `whole_tail`: the last chunk is as long as the others and may extend beyond the end of the audio. The
    model was trained so, and the compiled shapes can be reused; without it the last chunk is just long
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
    `new` of these are output."""

    index: int
    first: int
    frames: int
    known: int
    new: int

    @property
    def latents(self) -> int:
        return latents_of(self.frames)

    @property
    def output(self) -> range:
        """The frames of the video that this chunk outputs."""
        return range(self.first + self.known, self.first + self.known + self.new)


def video_frames(samples: int, rate: int) -> int:
    """Returns `floor(seconds * 25)`, computed in integers, since a float would sometimes lose a frame."""
    return samples * FPS // rate


def plan(total: int, shape: ChunkShape = ChunkShape()) -> Iterator[Chunk]:
    """Yields the chunks of a video of `total` frames, at least one."""
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
    """Returns the number of chunks in the plan."""
    return 1 + max(0, -(-(total - shape.frames) // shape.step))


def fitting(frames: int) -> int:
    """Returns the smallest 4n+1 that is at least `frames`."""
    return frames + (1 - frames) % STRIDE


def latents_of(frames: int) -> int:
    return (frames - 1) // STRIDE + 1


def mirrored(index: int, length: int) -> int:
    """Returns which of `length` audio frames is used for frame `index`. Beyond the end they run backwards,
    then forwards again, with the ends repeated: ... 1 0 | 0 1 2 | 2 1 0 | 0 1 ..."""
    index %= 2 * length
    return index if index < length else 2 * length - 1 - index
