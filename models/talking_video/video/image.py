"""The caller's image, cut to the shape of the video."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stoker.models.talking_video.video.sizes import Bucket, cover, nearest


def cut(image: Image.Image, size: str, shrink: int = 1) -> tuple[Bucket, NDArray[np.uint8]]:
    """Returns the bucket of a size that fits best, and the image in it, (H, W, 3), `shrink` times smaller.
    Only the cropped part is scaled: a strip of 64 x 390,625 pixels would need gigabytes as a whole."""
    bucket = nearest(size, image.height, image.width)
    target = Bucket(bucket.height // shrink, bucket.width // shrink)
    crop = cover(image.height, image.width, target)
    across, down = image.width / crop.width, image.height / crop.height
    left, top = crop.left * across, crop.top * down
    # Rounding may move the right and bottom edges beyond the image.
    right = min(left + target.width * across, image.width)
    bottom = min(top + target.height * down, image.height)
    box = (left, top, right, bottom)
    scaled = image.resize((target.width, target.height), Image.Resampling.LANCZOS, box)
    return bucket, np.asarray(scaled, np.uint8)
