"""What is packed for a machine that reaches no registry: with what is there, it is all that is needed."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import on_a_gpu

CONSTRAINTS = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()


def needed_by(names: Iterable[str]) -> set[str]:
    """With all that these need in turn; of torch, what its build for this machine needs."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found.add(name)
            wanted = map(Requirement, importlib.metadata.requires(name) or [])
            left += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def test_nothing_is_missing_next_to_what_is_packed() -> None:
    packed = {canonicalize_name(name) for name in on_a_gpu.PACKED}
    assert needed_by([*on_a_gpu.PACKED, "pytest-timeout"]) - needed_by(on_a_gpu.PRESENT) <= packed


def test_what_is_packed_is_pinned() -> None:
    pinned = {line.split("==")[0] for line in CONSTRAINTS if "==" in line}
    assert set(on_a_gpu.PACKED) <= pinned
