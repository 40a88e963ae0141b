"""Which way of drawing pictures is chosen, by what a terminal says of itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.previews.choice import Choice, Wanted, choose

XTERM = {"TERM": "xterm-256color"}


@pytest.mark.parametrize(
    ("environ", "way"),
    [
        ({"TERM": "xterm-kitty", "KITTY_WINDOW_ID": "1"}, Wanted.KITTY),
        ({"TERM": "xterm-kitty"}, Wanted.KITTY),  # over ssh
        ({"TERM": "xterm-ghostty", "TERM_PROGRAM": "ghostty"}, Wanted.KITTY),
        ({**XTERM, "TERM_PROGRAM": "iTerm.app"}, Wanted.ITERM),
        ({**XTERM, "LC_TERMINAL": "iTerm2"}, Wanted.ITERM),  # over ssh
        ({**XTERM, "TERM_PROGRAM": "WezTerm"}, Wanted.ITERM),
        ({**XTERM, "KONSOLE_VERSION": "250800"}, Wanted.ITERM),
        ({"TERM": "foot", "COLORTERM": "truecolor"}, Wanted.SIXEL),
        ({"TERM": "mlterm-256color"}, Wanted.SIXEL),
        ({**XTERM, "TERM_PROGRAM": "mintty"}, Wanted.SIXEL),
        ({**XTERM, "TERM_PROGRAM": "vscode", "KITTY_WINDOW_ID": "1"}, Wanted.BLOCKS),  # started from kitty
        ({**XTERM, "TERM_PROGRAM": "Apple_Terminal"}, Wanted.BLOCKS),
        ({"TERM": "tmux-256color", "TERM_PROGRAM": "tmux", "KITTY_WINDOW_ID": "1"}, Wanted.BLOCKS),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux,1,0"}, Wanted.BLOCKS),
        ({"TERM": "screen.xterm-256color"}, Wanted.BLOCKS),
        (XTERM, Wanted.BLOCKS),
        ({"TERM": "xterm", "COLORTERM": "24bit"}, Wanted.BLOCKS),
        ({"TERM": "xterm"}, Wanted.OFF),
        ({"TERM": "linux"}, Wanted.OFF),
        ({"TERM": "dumb"}, Wanted.OFF),
        ({}, Wanted.OFF),
        ({"TERM": "xterm-kitty", "NO_COLOR": "1"}, Wanted.OFF),
    ],
)
def test_a_terminal_is_known_by_its_environment(environ: dict[str, str], way: Wanted) -> None:
    assert choose(Wanted.AUTO, environ, is_terminal=True).way is way


NAMES = ["TERM", "TERM_PROGRAM", "LC_TERMINAL", "KITTY_WINDOW_ID", "COLORTERM", "TMUX", "NO_COLOR"]
ENVIRONS = st.dictionaries(
    st.sampled_from(NAMES),
    st.text(max_size=8) | st.sampled_from(["xterm-kitty", "foot", "truecolor", "tmux"]),
)


@given(st.sampled_from(Wanted), ENVIRONS)
def test_nothing_is_drawn_in_a_pipe_whatever_is_wanted(wanted: Wanted, environ: dict[str, str]) -> None:
    choice = choose(wanted, environ, is_terminal=False)
    assert choice.way is Wanted.OFF
    assert choice.reason


@given(st.sampled_from(Wanted), ENVIRONS)
def test_what_is_wanted_by_name_is_taken_and_every_choice_has_a_reason(
    wanted: Wanted, environ: dict[str, str]
) -> None:
    choice = choose(wanted, environ, is_terminal=True)
    assert choice.way is not Wanted.AUTO
    assert wanted is Wanted.AUTO or choice.way is wanted
    assert choice.reason


def test_blocks_have_the_colours_that_the_terminal_says() -> None:
    assert choose(Wanted.AUTO, XTERM, is_terminal=True) == Choice(
        Wanted.BLOCKS, "nothing says that xterm-256color draws pictures"
    )
    assert choose(Wanted.AUTO, {**XTERM, "COLORTERM": "truecolor"}, is_terminal=True).true_colour
    assert choose(Wanted.BLOCKS, {"TERM": "xterm-kitty"}, is_terminal=True).true_colour
