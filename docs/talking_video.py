"""Makes the clip of the demo's video for the README.

    make demo
    .venv/bin/python -P docs/talking_video.py out/talking.mp4

It shows the video that `make demo` makes without a GPU: the face that it draws, which talk-mini makes speak.
The same video gives the same clip.
"""

from __future__ import annotations

import sys
from pathlib import Path

import av
from PIL import Image

CLIP = Path(__file__).with_name("talking-video.gif")
SIDE, EVERY, COLOURS, FPS = 240, 2, 64, 25


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


if __name__ == "__main__":
    clip(Path(sys.argv[1]), CLIP)
    print(f"{CLIP}: {CLIP.stat().st_size} bytes")
