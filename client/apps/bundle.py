"""The source that a function needs on a worker: its module, and the project's modules that this imports.

    entry -> imports -> files of the project -> their imports -> ...      each file once

An import is looked for below the app's folder, then below the folder of the entry; what is in neither is left
to the worker, whose environment has it, or the endpoint's `dependencies` do. Only Python source is shipped.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stoker.client.apps.source import syntax_problem

BYTES_MAX = 8 << 20
"""Of all files of a bundle."""


class BundleError(Exception):
    """An app whose source cannot be shipped; the message says which file, and why."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The source of a function. `files` maps paths below the app's folder, with slashes, to source. `hash` is
    of all of them."""

    files: Mapping[str, str]
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", hashlib.sha256(self._canonical()).hexdigest())

    def _canonical(self) -> bytes:
        return json.dumps(dict(self.files), sort_keys=True, separators=(",", ":")).encode()

    def packed(self) -> str:
        """Returns the files as base64 of compressed JSON."""
        return base64.b64encode(zlib.compress(self._canonical(), 9)).decode()


def bundle(root: Path, *entries: str) -> Bundle:
    """Returns the files of `entries`, paths below `root` with slashes, and of all that they import. Raises
    BundleError."""
    root = root.resolve()
    files: dict[str, str] = {}
    total = 0
    todo = [(entry, entry.rpartition("/")[0]) for entry in entries]
    while todo:
        path, folder = todo.pop()
        if path in files:
            continue
        files[path] = _text(root, path)
        total += len(files[path].encode())
        if total > BYTES_MAX:
            raise BundleError(
                f"the source that {', '.join(entries)} imports is over {BYTES_MAX >> 20} MiB; install a part"
                " of it on the workers, by dependencies"
            )
        todo += [(found, folder) for found in _imported_files(root, folder, path, files[path])]
    return Bundle(files)


def imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Yields the dotted names that a module imports, with those that may be names in a module. Pure.
    `package` is the importing module's own, for relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if package else []
            above = parts[: len(parts) - node.level + 1] if node.level else []
            if node.level > len(parts) + (not package):
                continue  # beyond the top: it fails when it is imported
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _imported_files(root: Path, folder: str, path: str, text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BundleError(str(syntax_problem(error, path))) from None
    package = path.rpartition("/")[0].replace("/", ".")
    for name in imports(tree, package):
        yield from _files_of(root, name.replace(".", "/"))
        if folder:
            yield from _files_of(root, f"{folder}/{name.replace('.', '/')}")


def _files_of(root: Path, path: str) -> Iterator[str]:
    """Yields the file of a module, and the `__init__.py` of each package that the module is in."""
    if not any(_is_ours(root, one) for one in (f"{path}.py", f"{path}/__init__.py")):
        path = path.rpartition("/")[0]  # perhaps a name in a module: that is found by itself
    else:
        if _is_ours(root, f"{path}/__init__.py"):
            yield f"{path}/__init__.py"
        else:
            yield f"{path}.py"
        path = path.rpartition("/")[0]
    while path:
        if _is_ours(root, f"{path}/__init__.py"):
            yield f"{path}/__init__.py"
        path = path.rpartition("/")[0]


def _is_ours(root: Path, path: str) -> bool:
    """Returns whether the file lies in the project; a link may lead out of it."""
    found = root / path
    return found.is_file() and found.resolve().is_relative_to(root)


def _text(root: Path, path: str) -> str:
    try:
        return (root / path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BundleError(f"{path} is not UTF-8, and cannot be shipped") from None
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from None
