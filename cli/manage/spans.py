"""Spans of time as options, such as 90s, 30m, 24h or 7d. Pure."""

from __future__ import annotations

import re

from stoker.cli.errors import CliError

_SPAN = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds(option: str, text: str) -> float:
    """Returns the seconds of a span. Raises CliError, which names the option."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise CliError(f"{option} is a number and s, m, h or d, such as 24h; got {text!r}")
    return int(found[1]) * _UNITS[found[2]]
