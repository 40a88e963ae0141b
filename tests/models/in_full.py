"""Marks of tests that compare the numbers of networks, and take long: `make test-slow` runs them, and
`make test-models` too, with the instructions of another processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

IN_FULL = (pytest.mark.slow, pytest.mark.numbers)


def beyond(*always: str, names: Sequence[str]) -> list[Any]:
    """Returns the names as parameters. `make test` takes those of `always` only."""
    return [name if name in always else pytest.param(name, marks=IN_FULL) for name in names]
