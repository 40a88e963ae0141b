"""Installs of Stoker that have only some of its extras: a real environment each, whose packages are links.

What an extra brings is read from pyproject.toml and from the metadata of what is installed here: all of it,
and nothing else.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def make(folder: Path, extras: Iterable[str], *, base: bool = True) -> Path:
    """The environment's interpreter. `base`: with what every install has."""
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys._base_executable).parent}\n")  # type: ignore[attr-defined]
    python = folder / "bin" / "python"
    python.symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    (site / "stoker.pth").write_text(f"{ROOT / 'src'}\n")
    _describe(site)
    for name in brought(extras, base=base):
        for path in _top(metadata.distribution(name)):
            if not (site / path.name).exists():
                (site / path.name).symlink_to(path)
    return python


def brought(extras: Iterable[str], *, base: bool = True) -> set[str]:
    """The distributions that come with these extras, and with them."""
    metadata_ = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    project = metadata_["optional-dependencies"]
    found: set[str] = set()
    listed = [Requirement(line) for extra in extras for line in project[extra]]
    listed += [Requirement(line) for line in metadata_["dependencies"] if base]
    visited: set[str] = set()
    while listed:
        wanted = listed.pop()
        if str(wanted) in visited:
            continue
        visited.add(str(wanted))
        found.add(wanted.name)
        for line in metadata.requires(wanted.name) or ():
            more = Requirement(line)
            needed = more.marker is None or any(
                more.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)
            )
            if needed:
                listed.append(more)
    return found


def _describe(site: Path) -> None:
    """The metadata that pip would have written for it, from today's pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = site / "stoker-0.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", "Name: stoker", "Version: 0.0"]
    for extra, required in project["optional-dependencies"].items():
        lines += [
            f"Provides-Extra: {extra}",
            *(f'Requires-Dist: {one}; extra == "{extra}"' for one in required),
        ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///src/of/stoker"}')


def _top(distribution: metadata.Distribution) -> Iterator[Path]:
    """Its folders and files in site-packages."""
    names = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    for name in sorted(names):
        path = Path(os.fspath(distribution.locate_file(name)))
        if path.exists() and not re.search(r"\.pth$|^_distutils_hack$", name):
            yield path
