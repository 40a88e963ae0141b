"""Pictures in the protocols of kitty and of iTerm2, drawn from the cursor on. Pure.

kitty    the pixels, compressed, in pieces of 4096 characters; the next picture replaces this one
iTerm2   the file as it is
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator

from stoker.cli.previews.pictures import Cells, Pixels

PIECE = 4096
IMAGE = 7070
"""The number of the picture. A terminal shows one picture of a number."""


def kitty(pixels: Pixels, cells: Cells) -> str:
    size = f"f=24,s={pixels.width},v={pixels.height},o=z"
    place = f"a=T,i={IMAGE},p=1,c={cells.columns},r={cells.rows},C=1,q=2"
    data = base64.standard_b64encode(zlib.compress(pixels.rgb)).decode("ascii")
    return "".join(_pieces(f"{place},{size}", data))


def _pieces(keys: str, data: str) -> Iterator[str]:
    for begin in range(0, len(data), PIECE):
        more = int(begin + PIECE < len(data))
        head = f"{keys},m={more}" if begin == 0 else f"m={more},q=2"
        yield f"\x1b_G{head};{data[begin : begin + PIECE]}\x1b\\"


def iterm(file: bytes, cells: Cells) -> str:
    size = f"size={len(file)};width={cells.columns};height={cells.rows}"
    data = base64.standard_b64encode(file).decode("ascii")
    return f"\x1b]1337;File=inline=1;{size};preserveAspectRatio=1;doNotMoveCursor=1:{data}\x07"
