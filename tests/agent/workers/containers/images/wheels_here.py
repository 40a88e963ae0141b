"""The packages that this environment has, as wheels again: to build an image with where there is no index."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def make_wheels(folder: Path, *names: str) -> list[Path]:
    """Of these distributions and of all that they need; the shared objects that are in them. An editable one
    is left out."""
    waiting, seen, objects = [Requirement(name) for name in names], set(), []
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform or Python
        waiting += _needs(found, wanted.extras)
        objects += [path for path in _repack(found, folder) if path.suffix == ".so"]
    return objects


def _needs(found: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for line in found.requires or ():
        need = Requirement(line)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield need


def _repack(found: Distribution, folder: Path) -> list[Path]:
    """Its files."""
    lines = (found.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag: ").split("-") for line in lines if line.startswith("Tag: ")]
    if not tags or "dir_info" in (found.read_text("direct_url.json") or ""):
        return []
    columns = [".".join(dict.fromkeys(column)) for column in zip(*tags, strict=True)]
    stem = f"{canonicalize_name(found.metadata['Name']).replace('-', '_')}-{found.version}"
    packed = []
    with zipfile.ZipFile(folder / f"{stem}-{'-'.join(columns)}.whl", "w") as wheel:
        for file in found.files or ():
            path = Path(str(found.locate_file(file)))
            if ".." not in file.parts and path.suffix != ".pyc" and path.is_file():
                wheel.write(path, str(file))
                packed.append(path)
    return packed
