"""The sizes that run once when a worker starts, so that its first jobs of these sizes are quick.

STOKER_WARM_SIZES lists them, as `1024x1024,768x1344`, width first. Jobs of other sizes run without compiled
code. Without the variable each hosted model has its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

ENVIRONMENT: Final = "STOKER_WARM_SIZES"

_SIZE: Final = re.compile(r"([1-9][0-9]{1,4})x([1-9][0-9]{1,4})")


def parse(value: str) -> list[tuple[int, int]]:
    """Returns the sizes that a value of STOKER_WARM_SIZES lists: width and height. Raises ValueError."""
    found = []
    for part in filter(None, (one.strip() for one in value.split(","))):
        matched = _SIZE.fullmatch(part)
        if matched is None or any(int(side) % 64 for side in matched.groups()):
            raise ValueError(
                f"{ENVIRONMENT} has {part!r}; a size is WIDTHxHEIGHT in pixels, each divisible by 64"
            )
        found.append((int(matched[1]), int(matched[2])))
    return found


def chosen(otherwise: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the sizes of the environment, else these. Raises ValueError."""
    return parse(os.environ.get(ENVIRONMENT, "")) or list(otherwise)
