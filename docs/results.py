"""Makes the pictures and the clip of the README from what the demo made.

    make demo
    .venv/bin/python -P docs/results.py out

They show what `make demo` makes without a GPU: the images of flux-mini, side by side, and the face that the
demo draws, which talk-mini makes speak. The same files give the same results.
"""

from __future__ import annotations

import sys
from pathlib import Path

import av
from PIL import Image

CLIP, IMAGES = (Path(__file__).with_name("pictures") / name for name in ("talking-video.gif", "images.jpg"))
SIDE, EVERY, COLOURS, FPS = 240, 2, 64, 25
HEIGHT, GAP, QUALITY = 256, 8, 88


def clip(video: Path, to: Path) -> None:
    """Every second frame, small, as a GIF that repeats."""
    with av.open(str(video)) as opened:
        frames = [frame.to_image() for frame in opened.decode(video=0)][::EVERY]
    small = [frame.resize((SIDE, SIDE), Image.Resampling.LANCZOS) for frame in frames]
    page = Image.new("RGB", (SIDE, SIDE * len(small)))
    for number, frame in enumerate(small):
        page.paste(frame, (0, SIDE * number))
    palette = page.quantize(COLOURS)
    first, *rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    first.save(to, save_all=True, append_images=rest, duration=1000 * EVERY // FPS, loop=0)


def row(paths: list[Path], to: Path) -> None:
    """The images side by side, all of one height."""
    small = []
    for path in paths:
        with Image.open(path) as image:
            size = round(image.width * HEIGHT / image.height), HEIGHT
            small.append(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))
    width = sum(image.width for image in small) + GAP * (len(small) - 1)
    page, left = Image.new("RGB", (width, HEIGHT), "white"), 0
    for image in small:
        page.paste(image, (left, 0))
        left += image.width + GAP
    page.save(to, quality=QUALITY)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    row([folder / name for name in ("1.png", "2.jpg", "3.jpg")], IMAGES)
    clip(folder / "talking.mp4", CLIP)
    for path in (IMAGES, CLIP):
        print(f"{path}: {path.stat().st_size} bytes")
