"""Makes the two images about the demo's video: some of its frames in a grid, and its audio as a waveform.

    make demo
    .venv/bin/python -P docs/talking_video.py out/talking.mp4

They show the video that `make demo` makes without a GPU: the face that it draws, which talk-mini makes speak.
The same video gives the same images.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image, ImageDraw

HERE = Path(__file__).parent
COLUMNS, ROWS, SIDE, GAP = 4, 2, 160, 4
WIDTH, HEIGHT = 656, 120
PAPER, INK, AXIS = (255, 255, 255), (64, 84, 132), (190, 190, 190)
COLOURS = 256


def grid(video: Path) -> Image.Image:
    """Evenly spaced frames from the first to the last, each with its number."""
    with av.open(str(video)) as opened:
        frames = [frame.to_image() for frame in opened.decode(video=0)]
    numbers = np.linspace(0, len(frames) - 1, COLUMNS * ROWS).round().astype(int)
    page = Image.new("RGB", (COLUMNS * (SIDE + GAP) - GAP, ROWS * (SIDE + GAP) - GAP), PAPER)
    for position, number in enumerate(numbers):
        small = frames[number].copy()
        small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
        ImageDraw.Draw(small).text((5, 3), str(number), PAPER)
        page.paste(small, (position % COLUMNS * (SIDE + GAP), position // COLUMNS * (SIDE + GAP)))
    return page


def waveform(video: Path) -> Image.Image:
    """The video's audio from left to right: the smallest and the largest sample in each column of pixels."""
    with av.open(str(video)) as opened:
        audio: Any = np.concatenate([frame.to_ndarray()[0] for frame in opened.decode(audio=0)])
    page = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    pen = ImageDraw.Draw(page)
    middle = HEIGHT / 2
    loudest = max(float(np.abs(audio).max()), 1e-6)
    pen.line((0, middle, WIDTH, middle), AXIS)
    for column, part in enumerate(np.array_split(audio, WIDTH)):
        low, high = (middle - float(value) / loudest * (middle - 2) for value in (part.min(), part.max()))
        pen.line((column, high, column, low), INK)
    return page


def main() -> None:
    video = Path(sys.argv[1])
    for image, name in (
        (grid(video), "talking-video-frames.png"),
        (waveform(video), "talking-video-sound.png"),
    ):
        small = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)  # keeps rare colours, too: lips and eyes
        small.save(HERE / name, optimize=True)
        print(f"{HERE / name}: {(HERE / name).stat().st_size} bytes")


if __name__ == "__main__":
    main()
