"""The stretches of audio that the speech encoder processes at a time.

Pure. Audio of up to `whole_s` is encoded at once, as the network was trained; longer audio in stretches of
that length. Of each stretch the features of the frames in its middle are used, and those of the next stretch
begin where they end. So every frame has `behind_s` of sound before it and `ahead_s` after it, if there is as
much:

    stretch 0   |===================================|......|
    stretch 1                         |.............|===================================|......|
                                        `behind_s`                features              `ahead_s`

The features of a frame depend on its number alone: chunks that share a frame get the same features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stoker.models.talking_video.sampling.chunks import FPS


@dataclass(frozen=True, slots=True)
class Stretch:
    """Frames `begin` to `end` are encoded, and the features of `first` to `last` used; ends are exclusive."""

    first: int
    last: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Stretches:
    """The lengths, in seconds. The encoder's positional convolution reaches 2.56 s, so with less than that
    ahead it would treat the end of a stretch as the end of the audio."""

    whole_s: float = 120.0
    behind_s: float = 10.0
    ahead_s: float = 3.0

    def __post_init__(self) -> None:
        if self.used_frames < 1:
            raise ValueError(
                f"whole_s must be more than behind_s + ahead_s; got {self.whole_s:g} and"
                f" {self.behind_s:g} + {self.ahead_s:g}"
            )

    @property
    def used_frames(self) -> int:
        """Returns how many frames of a stretch in the middle of long audio are used."""
        return round(self.whole_s * FPS) - round(self.behind_s * FPS) - round(self.ahead_s * FPS)

    def over(self, first: int, last: int, frames: int) -> Iterator[Stretch]:
        """Yields the stretches that hold the frames `first` to `last`, in order, of audio with so many
        frames."""
        if frames <= round(self.whole_s * FPS):
            yield Stretch(0, frames, 0, frames)
            return
        for start in range(first - first % self.used_frames, last, self.used_frames):
            end = min(start + self.used_frames, frames)
            begin = max(0, start - round(self.behind_s * FPS))
            yield Stretch(start, end, begin, min(frames, end + round(self.ahead_s * FPS)))


DEFAULT: Final = Stretches()
