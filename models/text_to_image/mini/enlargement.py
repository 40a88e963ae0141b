"""Pictures of any size, made out of those that `flux-mini` draws: the nearest of their shapes, scaled. Where
the requested picture is wider or higher, the background goes on, which changes from top to bottom only.

Imports torch, numpy and Pillow only when a picture is made.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from PIL import Image

    Pixels = NDArray[Any]

DRAWN: Final = ((512, 512), (768, 512), (512, 768))
"""The sizes that it draws, in pixels: those that it was trained on last."""
FRAME: Final = 2
"""So many pixels at the edges of what is drawn are left out of other sizes: the autoencoder darkens them."""
STRIP: Final = 16
"""The part of the picture, one in so many, that shows what its background is, and at the edges becomes it."""


def nearest(width: int, height: int) -> tuple[int, int]:
    """Returns the drawn size whose shape is nearest to that of the requested picture."""
    return min(DRAWN, key=lambda drawn: abs(log(width * drawn[1] / (height * drawn[0]))))


def middle(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Returns the largest part of this shape in the middle of an image, scaled to this size."""
    from PIL import Image, ImageOps

    return ImageOps.fit(image, size, Image.Resampling.LANCZOS)


def enlarged(drawn: Image.Image, width: int, height: int) -> Image.Image:
    """Returns the drawn picture in this size."""
    import numpy as np
    from PIL import Image

    if drawn.size == (width, height):
        return drawn
    scale = min(width / drawn.width, height / drawn.height)
    inner = (FRAME, FRAME, drawn.width - FRAME, drawn.height - FRAME)
    size = (min(width, round(drawn.width * scale)), min(height, round(drawn.height * scale)))
    scaled = drawn.convert("RGB").resize(size, Image.Resampling.LANCZOS, box=inner)
    pixels = np.asarray(scaled).astype(np.float32)
    if width > size[0]:
        pixels = _wider(pixels, width)
    elif height > size[1]:
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
    """Returns the picture with these two strips at the ends of an axis, faded in so that no seam is seen."""
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
    """Returns the latents of a drawn picture, (1, channels, rows, columns), for one whose width is `ratio`
    times its height: the outermost rows or columns are repeated."""
    from torch.nn import functional

    rows, columns = latents.shape[2:]
    across = _halves(max(0, round(rows * ratio) - columns))
    down = _halves(max(0, round(columns / ratio) - rows))
    return functional.pad(latents, (*across, *down), mode="replicate")
