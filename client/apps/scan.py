"""A scan of an app's source for its endpoints, without importing it.

    folder -> *.py -> syntax tree -> endpoints, with their options if those are literals
                  └-> problems: a syntax error, a wrong option, a name or a route that is taken

Tables, routes and documentation are made of this. It finds decorators of a module's top level, `endpoint`
under any name by which it was imported from `stoker.client`, and `api = endpoint(...)`. An option that is
computed is listed in `dynamic`; then `importing` gets the definition, as the module itself makes it. Both
need no package that the app needs, except `importing`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stoker.client.apps.scanned import Endpoint, Problem
from stoker.client.apps.source import scan_source

_SKIPPED = frozenset({"__pycache__", "node_modules", "build", "dist", "out", "venv", "site-packages"})


@dataclass(frozen=True, slots=True)
class App:
    """The endpoints of a folder, in the order of their files, and what is wrong with it."""

    root: Path
    endpoints: tuple[Endpoint, ...] = ()
    problems: tuple[Problem, ...] = ()


def scan(root: Path) -> App:
    """Reads every Python file below `root`, except in folders that `skipped` names."""
    endpoints: list[Endpoint] = []
    problems: list[Problem] = []
    for path in python_files(root):
        try:
            text = (root / path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(path, 1, f"it cannot be read as UTF-8: {error}"))
            continue
        if "endpoint" not in text:  # most files of a project; parsing them all takes longer
            continue
        found, wrong = scan_source(text, path)
        endpoints += found
        problems += wrong
    return App(root, tuple(endpoints), (*problems, *_taken_names(endpoints)))


def python_files(root: Path) -> Iterator[str]:
    """Yields the paths of the Python files below `root`, relative to `root`, with slashes, in order."""
    for folder, files in scanned_folders(root):
        yield from (PurePosixPath(folder, name).as_posix() for name in files)


def scanned_folders(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields the folders below `root` that are not skipped, relative to `root`, each with the names of its
    Python files, in order; `root` itself is the first, as "."."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not skipped(name))
        yield os.path.relpath(folder, root), sorted(name for name in files if name.endswith(".py"))


def skipped(name: str) -> bool:
    """Returns whether folders of this name are left out: hidden ones, environments, and what is built."""
    return name.startswith(".") or name in _SKIPPED or name.endswith(".egg-info")


def _taken_names(endpoints: list[Endpoint]) -> Iterator[Problem]:
    first: dict[str, Endpoint] = {}
    for endpoint in endpoints:
        other = first.setdefault(endpoint.name, endpoint)
        if other is not endpoint:
            yield Problem(
                endpoint.path,
                endpoint.line,
                f"the name {endpoint.name} is taken by {other.target} in {other.path}, line {other.line};"
                " give one of them another name=",
            )
