"""Runs Python as a machine would that has what `bench/on_a_gpu.py` finds there and brings, and nothing else.

python only_packed.py -m MODULE …    or    python only_packed.py FILE …
"""

from __future__ import annotations

import importlib.metadata
import runpy
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import on_a_gpu


def needed_by(names: tuple[str, ...]) -> set[str]:
    """With all that these need in turn."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found.add(name)
            wanted = map(Requirement, importlib.metadata.requires(name) or [])
            left += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


class Present:
    """Finds what another finder does, but for modules of packages that are not allowed."""

    def __init__(self, finder: Any, allowed: set[str]) -> None:
        self.finder = finder
        self.absent = {
            module
            for module, distributions in importlib.metadata.packages_distributions().items()
            if not {canonicalize_name(name) for name in distributions} & allowed
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(self, name: str, *more: Any) -> Any:
        return None if name.partition(".")[0] in self.absent else self.finder.find_spec(name, *more)


def main(arguments: list[str]) -> None:
    packed = {canonicalize_name(name) for name in on_a_gpu.PACKED}
    allowed = needed_by(on_a_gpu.PRESENT) | packed | {"stoker", "setuptools"}
    sys.meta_path[:] = [Present(finder, allowed) for finder in sys.meta_path]  # type: ignore[misc]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
