"""Hypothesis for checks that are put to mutants too: the same examples in every run, and no shrinking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import Phase, given, settings

QUICK = settings(
    max_examples=100, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)


FEW = settings(QUICK, max_examples=5)


def drawn(*strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """As `given`; the check's first argument is not drawn, but given by whoever calls it. Its `few` is the
    check with its first examples: most mutants are noticed in them."""

    def decorated(check: Callable[..., None]) -> Any:
        whole: Any = QUICK(given(*strategies)(check))
        whole.few = FEW(given(*strategies)(check))
        return whole

    return decorated
