"""Images and videos in files, compared by what they show: the first difference, and the largest."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image


def images_differ(one: Path, other: Path) -> str | None:
    """Returns where two images differ first, and by how much at most; empty where no pixel does. None where
    a file is not an image, or Pillow is not installed here."""
    first, second = _opened(one), _opened(other)
    if first is None or second is None:
        return None
    if first.size != second.size:
        return f"{one} is {first.width} x {first.height} pixels, {other} {second.width} x {second.height}"
    texts = [image.tobytes() for image in (first, second)]
    if texts[0] == texts[1]:
        return ""
    at = next(n for n in range(len(texts[0])) if texts[0][n] != texts[1][n]) // 4
    where = f"{at % first.width}, {at // first.width}"
    return f"{one} and {other} differ first at pixel {where}; {_largest(first, second)}"


def _opened(path: Path) -> Image | None:
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError:
        return None
    try:
        with Image.open(path) as opened:
            return opened.convert("RGBA")
    except (UnidentifiedImageError, OSError):
        return None


def _largest(one: Image, other: Image) -> str:
    from PIL import ImageChops

    extrema: Any = ImageChops.difference(one, other).getextrema()
    return f"the largest difference is {max(most for _, most in extrema)} of 255"


def videos_differ(one: Path, other: Path) -> str | None:
    """Returns the same of two videos: their frames first, and where these are equal, their sound. None where
    a file is not a video, or PyAV is not installed here."""
    try:
        import av
    except ModuleNotFoundError:
        return None
    try:
        with av.open(str(one)) as first, av.open(str(other)) as second:
            if not (first.streams.video and second.streams.video):
                return None
            return _frames_differ(one, other, first, second)
    except av.FFmpegError:
        return None


def _frames_differ(one: Path, other: Path, first: Any, second: Any) -> str:
    unlike: list[int] = []
    largest = 0
    for n, pair in enumerate(zip_longest(_frames(first), _frames(second))):
        if pair[0] is None or pair[1] is None:
            return f"{one if pair[1] is None else other} has more than the {n} frames of the other"
        if pair[0].shape != pair[1].shape:
            return f"{one} and {other} have frames of different sizes"
        if most := int(abs(pair[0].astype(int) - pair[1].astype(int)).max()):
            unlike.append(n)
            largest = max(largest, most)
    if unlike:
        many = f"{len(unlike)} of {n + 1} frames differ"
        return f"{one} and {other}: {many}, first {unlike[0]}; the largest difference is {largest} of 255"
    return "" if _sound(one) == _sound(other) else f"{one} and {other} have equal frames and another sound"


def _frames(container: Any) -> Iterator[Any]:
    for frame in container.decode(video=0):
        yield frame.to_ndarray(format="rgb24")


def _sound(path: Path) -> bytes:
    import av

    with av.open(str(path)) as container:
        if not container.streams.audio:
            return b""
        return b"".join(frame.to_ndarray().tobytes() for frame in container.decode(audio=0))
