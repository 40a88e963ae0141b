"""Hypothesis for checks that are put to mutants too: the same examples in every run, and no shrinking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import Phase, given, settings

QUICK = settings(
    max_examples=100, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)


def drawn(*strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `given`; the check's first argument is not drawn, but given by whoever calls it."""
    return lambda check: QUICK(given(*strategies)(check))
