"""What is packed for a machine that reaches no registry: with what is there, it is all that is needed."""

from __future__ import annotations

from pathlib import Path

from packaging.utils import canonicalize_name

from tests.bench.only_packed import needed_by, on_a_gpu

CONSTRAINTS = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()


def test_nothing_is_missing_next_to_what_is_packed() -> None:
    packed = {canonicalize_name(name) for name in on_a_gpu.PACKED}
    assert needed_by(on_a_gpu.PACKED) - needed_by(on_a_gpu.PRESENT) <= packed


def test_what_is_packed_is_pinned() -> None:
    pinned = {line.split("==")[0] for line in CONSTRAINTS if "==" in line}
    assert set(on_a_gpu.PACKED) <= pinned
