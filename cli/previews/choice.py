"""The way of drawing pictures that a terminal has, read from the environment. Pure.

    not a terminal, dumb, NO_COLOR       none
    tmux, screen                         blocks: they pass no pictures on, unless they are told to
    kitty, Ghostty                       kitty
    iTerm2, WezTerm, Konsole             iterm
    foot, mlterm, Contour, mintty        sixel
    any other, of 256 colours or more    blocks

What runs in the terminal is told by TERM first, which goes along over ssh. Variables of one terminal are
inherited by another that is started from it, so TERM_PROGRAM comes before those of single terminals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Wanted(Enum):
    """The values of `--preview`."""

    AUTO = "auto"
    KITTY = "kitty"
    ITERM = "iterm"
    SIXEL = "sixel"
    BLOCKS = "blocks"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Choice:
    """A way of drawing, and why it was chosen; OFF draws nothing. `true_colour`: blocks have any colour, not
    one of 256."""

    way: Wanted
    reason: str
    true_colour: bool = False


_OF_TERM = {
    "xterm-kitty": Wanted.KITTY,
    "xterm-ghostty": Wanted.KITTY,
    "wezterm": Wanted.ITERM,
    "foot": Wanted.SIXEL,
    "foot-extra": Wanted.SIXEL,
    "mlterm": Wanted.SIXEL,
    "mlterm-256color": Wanted.SIXEL,
    "contour": Wanted.SIXEL,
}
_OF_PROGRAM = {
    "ghostty": Wanted.KITTY,
    "iterm.app": Wanted.ITERM,
    "iterm2": Wanted.ITERM,
    "wezterm": Wanted.ITERM,
    "mintty": Wanted.SIXEL,
}
_OF_VARIABLE = {
    "KITTY_WINDOW_ID": Wanted.KITTY,
    "GHOSTTY_RESOURCES_DIR": Wanted.KITTY,
    "WEZTERM_PANE": Wanted.ITERM,
    "ITERM_SESSION_ID": Wanted.ITERM,
    "KONSOLE_VERSION": Wanted.ITERM,
    "MLTERM": Wanted.SIXEL,
}
_MULTIPLEXERS = ("tmux", "screen")


def choose(wanted: Wanted, environ: Mapping[str, str], *, is_terminal: bool) -> Choice:
    """Returns how pictures are drawn. What is wanted by name is taken at its word, in a terminal."""
    if wanted is Wanted.OFF:
        return Choice(Wanted.OFF, "--preview is off")
    if not is_terminal:
        return Choice(Wanted.OFF, "the output is not a terminal")
    colours = _colours(environ)
    if wanted is not Wanted.AUTO:
        return Choice(wanted, f"--preview is {wanted.value}", colours > 256)
    term = environ.get("TERM", "").lower()
    if term in ("", "dumb"):
        return Choice(Wanted.OFF, f"TERM is {term!r}, a terminal that draws nothing")
    if environ.get("NO_COLOR"):
        return Choice(Wanted.OFF, "NO_COLOR is set")
    way, reason = _way(term, environ)
    if way is Wanted.BLOCKS and colours < 256:
        return Choice(Wanted.OFF, f"TERM is {term!r}, a terminal of fewer than 256 colours")
    return Choice(way, reason, colours > 256)


def _way(term: str, environ: Mapping[str, str]) -> tuple[Wanted, str]:
    if environ.get("TMUX") or term.startswith(_MULTIPLEXERS):
        return Wanted.BLOCKS, "tmux and screen pass no pictures on"
    if (way := _OF_TERM.get(term)) is not None:
        return way, f"TERM is {term}"
    for name in ("TERM_PROGRAM", "LC_TERMINAL"):
        if program := environ.get(name):
            return _OF_PROGRAM.get(program.lower(), Wanted.BLOCKS), f"{name} is {program}"
    for name, way in _OF_VARIABLE.items():
        if environ.get(name):
            return way, f"{name} is set"
    return Wanted.BLOCKS, f"nothing says that {term} draws pictures"


def _colours(environ: Mapping[str, str]) -> int:
    """Returns how many colours the terminal has, as far as it matters here."""
    term = environ.get("TERM", "").lower()
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or term in _OF_TERM:
        return 1 << 24
    return 256 if "256" in term or term.endswith("-direct") else 16
