"""What terminals make of pictures: each way of drawing, read back to pixels."""

from __future__ import annotations

import base64
import re
import zlib

Colour = tuple[int, int, int]

_SGR = re.compile(r"\x1b\[38;([\d;]+?);48;(2;\d+;\d+;\d+|5;\d+)m")
_CONTROL = re.compile(
    r"\x1b\[(\d*)([ABCD])|\x1b\[0m|\x1b\[38;[\d;]+m|\x1b([78])|\x1b\[[?\d;]*[a-zA-Z]|[\r\n]|.", re.DOTALL
)


def kitty(text: str) -> tuple[dict[str, str], bytes]:
    """The keys of the first piece, and the bytes of all pieces; the last alone says that none follows."""
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert "".join(f"\x1b_G{keys};{data}\x1b\\" for keys, data in pieces) == text
    keys = [dict(pair.split("=") for pair in one.split(",")) for one, _ in pieces]
    assert [one["m"] for one in keys] == ["1"] * (len(pieces) - 1) + ["0"]
    assert all(len(data) <= 4096 and (len(data) % 4 == 0) for _, data in pieces)
    return keys[0], zlib.decompress(base64.b64decode("".join(data for _, data in pieces)))


def iterm(text: str) -> tuple[dict[str, str], bytes]:
    head, _, data = text.removeprefix("\x1b]1337;File=").partition(":")
    assert text.startswith("\x1b]1337;File=")
    assert data.endswith("\x07")
    return dict(pair.split("=") for pair in head.split(";")), base64.b64decode(data[:-1], validate=True)


def sixel(text: str) -> list[list[Colour]]:
    """The rows of the picture; each pixel must have been drawn exactly once."""
    found = re.fullmatch(r'\x1bP0;1q"1;1;(\d+);(\d+)((?:#\d+;2;\d+;\d+;\d+)*)(.*)\x1b\\', text, re.DOTALL)
    assert found is not None
    width, height = int(found[1]), int(found[2])
    colours = {
        int(one[0]): (int(one[1]), int(one[2]), int(one[3]))
        for one in re.findall(r"#(\d+);2;(\d+);(\d+);(\d+)", found[3])
    }
    drawn: dict[tuple[int, int], Colour] = {}
    for band, bodies in enumerate(found[4].split("-")):
        for body in bodies.split("$"):
            number, sixels = re.fullmatch(r"#(\d+)(.*)", body).groups()  # type: ignore[union-attr]
            column = 0
            for count, sign in re.findall(r"(?:!(\d+))?([?-~])", sixels):
                for _ in range(int(count or 1)):
                    for bit in range(6):
                        if (ord(sign) - 63) >> bit & 1:
                            assert (column, 6 * band + bit) not in drawn
                            drawn[column, 6 * band + bit] = colours[int(number)]
                    column += 1
            assert column == width
    return [[drawn[column, row] for column in range(width)] for row in range(height)]


class Grid:
    """The cells of a terminal: what was written where. It knows as much as previews need."""

    def __init__(self, text: str) -> None:
        self.cells: dict[tuple[int, int], tuple[str, str]] = {}
        self.row = self.column = 0
        self._saved, style = (0, 0), ""
        for found in _CONTROL.finditer(text):
            token = found[0]
            if found[2]:
                self._move(found[2], int(found[1] or 1))
            elif found[3] == "7":
                self._saved = self.row, self.column
            elif found[3] == "8":
                self.row, self.column = self._saved
            elif token.startswith("\x1b"):
                style = token if token.endswith("m") else style
            elif token == "\r":
                self.column = 0
            elif token == "\n":
                self.row, self.column = self.row + 1, 0
            else:
                self.cells[self.row, self.column] = (token, style)
                self.column += 1

    def _move(self, way: str, by: int) -> None:
        self.row += {"A": -by, "B": by}.get(way, 0)
        self.column += {"C": by, "D": -by}.get(way, 0)
        assert self.row >= 0
        assert self.column >= 0

    def blocks(self) -> dict[tuple[int, int], tuple[str, str]]:
        """The codes of the upper and the lower colour of each half block."""
        found = {at: _SGR.fullmatch(style) for at, (sign, style) in self.cells.items() if sign == "▀"}
        return {at: (one[1], one[2]) for at, one in found.items() if one is not None}

    def line(self, row: int) -> str:
        columns = [column for at, column in self.cells if at == row]
        signs = (
            self.cells.get((row, column), (" ", ""))[0] for column in range(max(columns, default=-1) + 1)
        )
        return "".join(signs)

    def text(self) -> str:
        return "\n".join(map(self.line, range(1 + max((row for row, _ in self.cells), default=0))))
