"""Pictures of any size, made out of the square that `flux-mini` draws: enlarged, and beside the square the
background goes on, which changes from top to bottom only.

Imports torch, numpy and Pillow only when a picture is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from PIL import Image

    Pixels = NDArray[Any]

FRAME: Final = 2
"""So many pixels at the edges of the square are left out of larger pictures: the autoencoder darkens them."""
STRIP: Final = 16
"""The part of the square, one in so many, that shows what its background is, and at the edges becomes it."""


def middle(image: Image.Image, side: int) -> Image.Image:
    """Returns the largest square in the middle of an image, scaled to this side."""
    from PIL import Image, ImageOps

    return ImageOps.fit(image, (side, side), Image.Resampling.LANCZOS)


def enlarged(square: Image.Image, width: int, height: int) -> Image.Image:
    """Returns the square picture in this size."""
    import numpy as np
    from PIL import Image

    if square.size == (width, height):
        return square
    side = min(width, height)
    inner = (FRAME, FRAME, square.width - FRAME, square.height - FRAME)
    larger = square.convert("RGB").resize((side, side), Image.Resampling.LANCZOS, box=inner)
    pixels = np.asarray(larger).astype(np.float32)
    if width > side:
        pixels = _wider(pixels, width)
    elif height > side:
        pixels = _higher(pixels, height)
    return Image.fromarray(np.ascontiguousarray(pixels.round().clip(0, 255).astype(np.uint8)))


def _wider(pixels: Pixels, width: int) -> Pixels:
    """Widens a picture with the background of the strip that changes least on both sides: objects may touch
    the edges."""
    import numpy as np

    strip = pixels.shape[1] // STRIP
    strips = [
        np.median(pixels[:, at : at + strip], axis=1, keepdims=True)
        for at in range(0, pixels.shape[1] - strip + 1, strip)
    ]
    calmest = min(strips, key=lambda one: float(np.abs(np.diff(one, axis=0)).sum()))
    before, after = _halves(width - pixels.shape[1])
    faded = _faded(pixels, calmest, calmest, strip, axis=1)
    return np.concatenate((np.repeat(calmest, before, 1), faded, np.repeat(calmest, after, 1)), axis=1)


def _higher(pixels: Pixels, height: int) -> Pixels:
    """Heightens a picture with the colour of most of the top above, and with that of the bottom below."""
    import numpy as np

    strip = pixels.shape[0] // STRIP
    above, below = (
        np.median(part, axis=(0, 1), keepdims=True) + np.zeros((1, pixels.shape[1], 1), np.float32)
        for part in (pixels[: strip // 2], pixels[-(strip // 2) :])
    )
    before, after = _halves(height - pixels.shape[0])
    faded = _faded(pixels, above, below, strip, axis=0)
    return np.concatenate((np.repeat(above, before, 0), faded, np.repeat(below, after, 0)))


def _faded(pixels: Pixels, first: Pixels, last: Pixels, strip: int, axis: int) -> Pixels:
    """Returns the square whose strips at both ends of an axis become these two, so that no seam is seen."""
    import numpy as np

    at = np.arange(pixels.shape[axis])
    shape = (-1, 1, 1) if axis == 0 else (1, -1, 1)
    of_first, of_last = (
        np.clip(1 - distance / strip, 0, 1).astype(np.float32).reshape(shape) for distance in (at, at[::-1])
    )
    found: Pixels = pixels * (1 - of_first - of_last) + first * of_first + last * of_last
    return found


def _halves(number: int) -> tuple[int, int]:
    return number // 2, number - number // 2


def with_sides(latents: torch.Tensor, ratio: float) -> torch.Tensor:
    """Returns the latents of the square, (1, channels, rows, rows), for a picture whose width is `ratio`
    times its height: the outermost rows or columns are repeated."""
    from torch.nn import functional

    rows = latents.shape[2]
    across = _halves(max(0, round(rows * ratio) - rows))
    down = _halves(max(0, round(rows / ratio) - rows))
    return functional.pad(latents, (*across, *down), mode="replicate")
