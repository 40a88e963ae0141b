"""Checks and resolves an `imageName`: an image, or `local:` and a path on the nodes, in an allowed folder.

    local:handlers/echo.py:handler    a python handler in a file
    local:workers/voice               a folder, where a dockerStartCmd is run
    local:stoker.functions            the worker for functions, which every node has: it runs callers' code
    ghcr.io/example/voice:1.2         an image, by its tag or digest

Links are resolved before a path is compared with the folders, so that none can lead out of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from stoker.control.rules.submissions import abbreviated

LOCAL = "local:"
FUNCTIONS = f"{LOCAL}stoker.functions"
_FUNCTIONS_HANDLER = "stoker.worker.functions.handler:Functions"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"{_PART}(?::[0-9]+)?(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)


class ImageNameError(ValueError):
    """The message names field, value and what is allowed."""


def resolved(
    image: str, field: str, base: Path, roots: tuple[Path, ...], *, program: bool, functions: bool
) -> str:
    """Returns an image unchanged, and a local path as an absolute path. Relative paths start at `base`.

    `program`: the path is a folder in which a command is run; the worker for functions needs none, and the
    result is without a path. `functions`: whether that worker is allowed. Raises ImageNameError, which begins
    with `field`.
    """
    if image == FUNCTIONS:
        if not functions:
            raise ImageNameError(
                f"{field} is {FUNCTIONS}, which runs code of callers on the nodes; allow it with"
                " functions = true in the configuration"
            )
        return LOCAL if program else LOCAL + _FUNCTIONS_HANDLER
    if named_image(image):
        return image
    return LOCAL + (_folder if program else _handler)(image, field, base, roots)


def named_image(text: str) -> bool:
    """Returns whether the text is an image with a tag or digest. A name that ends in ".py" is taken for a
    file."""
    if text.startswith(LOCAL) or not _IMAGE.fullmatch(text):
        return False
    name, digest, _ = text.partition("@")
    name, tag, version = name.rpartition(":")
    return (bool(digest) or (bool(tag) and "/" not in version)) and not name.endswith(".py")


def _folder(image: str, field: str, base: Path, roots: tuple[Path, ...]) -> str:
    """Resolves `local:workers/voice` to `/abs/workers/voice`."""
    local_path = image.removeprefix(LOCAL)
    if not image.startswith(LOCAL) or not local_path:
        raise ImageNameError(
            f'{field} must read "local:<folder>" beside a dockerStartCmd, or name an image by its'
            f" tag or digest; got {abbreviated(image)}"
        )
    path = _allowed(base, local_path, roots, field)
    if not path.is_dir():
        raise ImageNameError(f"{field} must be a folder beside a dockerStartCmd; there is none at {path}")
    return str(path)


def _handler(image: str, field: str, base: Path, roots: tuple[Path, ...]) -> str:
    """Resolves `local:handlers/echo.py:handler` to `/abs/handlers/echo.py:handler`."""
    local_path, _, attribute = image.removeprefix(LOCAL).rpartition(":")
    if not image.startswith(LOCAL) or not local_path.endswith(".py") or not attribute.isidentifier():
        raise ImageNameError(
            f'{field} must read "local:<path>.py:<name>", or "local:<folder>" beside a dockerStartCmd, or'
            f" name an image by its tag or digest; got {abbreviated(image)}"
        )
    path = _allowed(base, local_path, roots, field)
    if not path.is_file():
        raise ImageNameError(f"{field} must be a file; there is none at {path}")
    return f"{path}:{attribute}"


def _allowed(base: Path, local_path: str, roots: tuple[Path, ...], field: str) -> Path:
    try:
        path = (base / local_path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a cycle of links, or no path at all
        raise ImageNameError(
            f"{field} is not a valid location: {error}; got {abbreviated(local_path)}"
        ) from None
    if not any(path.is_relative_to(root) for root in roots):
        allowed = ", ".join(str(root) for root in roots) or "none; add local_roots = [...]"
        raise ImageNameError(
            f"{field} must lie below a folder of local_roots; got {path}; allowed: {allowed}"
        )
    return path
