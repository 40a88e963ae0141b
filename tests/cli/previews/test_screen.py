"""Where previews are drawn on a console, and when none are."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from stoker.cli.previews import pictures, screen
from stoker.cli.previews.choice import Choice, Wanted
from stoker.cli.previews.screen import Screen, screen_of
from tests.cli.previews import decoders

XTERM = {"TERM": "xterm-256color"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(*, terminal: bool = True) -> Console:
    """A console that takes its file for a terminal, as with FORCE_COLOR, whether or not it is one."""
    file = Terminal() if terminal else io.StringIO()
    return Console(file=file, force_terminal=True, width=80, height=30, color_system=None)


def written(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def preview(colour: str = "red", size: tuple[int, int] = (64, 64), kind: str = "JPEG") -> dict[str, Any]:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return {"preview": {"data": base64.b64encode(file.getvalue()).decode()}}


def test_each_preview_is_drawn_where_the_first_was() -> None:
    on = console()
    shown = Screen(on, Choice(Wanted.BLOCKS, "", True))
    on.print("before")
    for colour in ("red", "blue"):
        shown.show(preview(colour, kind="PNG"))
    grid = decoders.Grid(written(on))
    found = grid.blocks()
    assert {row for row, _ in found} == set(range(1, 17))
    assert {column for _, column in found} == set(range(32))
    assert set(found.values()) == {("2;0;0;255", "2;0;0;255")}
    assert (grid.row, grid.column) == (17, 0), "the cursor is below the picture"


def test_after_a_line_the_next_preview_has_a_place_of_its_own() -> None:
    on = console()
    shown = Screen(on, Choice(Wanted.BLOCKS, "", True))
    shown.show(preview())
    on.print("the worker was lost")
    shown.moved()
    shown.show(preview("blue"))
    assert {row for row, _ in decoders.Grid(written(on)).blocks()} == {*range(16), *range(17, 33)}


@pytest.mark.parametrize("way", [Wanted.KITTY, Wanted.SIXEL, Wanted.ITERM])
def test_a_preview_in_each_protocol(way: Wanted) -> None:
    on = console()
    Screen(on, Choice(way, "")).show(preview(size=(96, 48)))
    rows, _, rest = written(on).partition("\x1b7\r\x1b[")
    up, _, text = rest.removesuffix("\x1b8").partition("A")
    assert rows == "\n" * int(up)
    match way:
        case Wanted.KITTY:
            keys, rgb = decoders.kitty(text)
            assert (keys["c"], keys["r"], len(rgb)) == ("48", "12", 96 * 48 * 3)
        case Wanted.SIXEL:
            found = decoders.sixel(text)
            assert (len(found), len(found[0]), found[50][50]) == (96, 192, (100, 0, 0))
        case _:
            assert decoders.iterm(text)[1].startswith(b"\xff\xd8\xff")


@pytest.mark.parametrize(
    "output",
    [
        {},
        {"preview": None},
        {"preview": {"data": 3}},
        {"preview": {"data": "?"}},
        {"preview": {"data": base64.b64encode(b"GIF89a").decode()}},
        {"preview": {"data": base64.b64encode(b"\xff\xd8\xff cut off").decode()}},
        preview(size=(1025, 8)),
    ],
)
def test_what_is_no_preview_draws_nothing(output: dict[str, Any]) -> None:
    on = console()
    Screen(on, Choice(Wanted.BLOCKS, "")).show(output)
    assert written(on) == ""


def test_in_a_pipe_there_are_none_and_who_asked_is_told() -> None:
    on = console(terminal=False)
    assert screen_of(on, Wanted.AUTO, XTERM) is None
    assert written(on) == ""
    assert screen_of(on, Wanted.SIXEL, XTERM) is None
    assert written(on) == "no previews: the output is not a terminal\n"


def test_without_pillow_there_are_none_but_in_iterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "can_decode", lambda: False)
    on = console()
    assert screen_of(on, Wanted.AUTO, XTERM) is None
    assert "Pillow, which draws them in this terminal, is not installed; pip install pillow" in written(on)
    shown = screen_of(on, Wanted.AUTO, {**XTERM, "TERM_PROGRAM": "iTerm.app"})
    assert shown is not None
    shown.show(preview())
    assert "\x1b]1337;File=" in written(on)
    assert screen_of(console(), Wanted.OFF, XTERM) is None


def test_a_row_of_sixels_is_as_high_as_the_terminal_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "_pixels_of_row", lambda _: 20)
    on = console()
    Screen(on, Choice(Wanted.SIXEL, "")).show(preview())
    assert written(on).startswith("\n" * 7 + "\x1b7"), "128 pixels are less than 7 rows of 20"
