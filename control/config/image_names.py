"""What an `imageName` names: an image, or `local:` and a place on the nodes, below folders that are allowed.

    local:handlers/echo.py:handler    a python handler in a file
    local:workers/voice               a folder, where a dockerStartCmd is run
    ghcr.io/example/voice:1.2         an image, by its tag or digest

Links are followed before a place is compared with the folders, so that none can point out of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from stoker.control.submissions import shown

LOCAL = "local:"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"{_PART}(?::[0-9]+)?(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)


class PlaceError(ValueError):
    """The text names field, value and what is allowed."""


def placed(image: str, field: str, base: Path, roots: tuple[Path, ...], *, program: bool) -> str:
    """An image as it stands, and a place with its whole path. Relative ones start at `base`.

    `program`: there is a command to run, in a folder. Raises PlaceError, which begins with `field`.
    """
    if named_image(image):
        return image
    return LOCAL + (_folder if program else _handler)(image, field, base, roots)


def named_image(given: str) -> bool:
    """An image by its tag or digest. Nobody's image is named after a Python file."""
    if given.startswith(LOCAL) or not _IMAGE.fullmatch(given):
        return False
    name, digest, _ = given.partition("@")
    name, tag, version = name.rpartition(":")
    return (bool(digest) or (bool(tag) and "/" not in version)) and not name.endswith(".py")


def _folder(image: str, field: str, base: Path, roots: tuple[Path, ...]) -> str:
    """`local:workers/voice` as `/abs/workers/voice`."""
    given = image.removeprefix(LOCAL)
    if not image.startswith(LOCAL) or not given:
        raise PlaceError(
            f'{field} must read "local:<folder>" beside a dockerStartCmd, or name an image by its'
            f" tag or digest; got {shown(image)}"
        )
    path = _allowed(base, given, roots, field)
    if not path.is_dir():
        raise PlaceError(f"{field} must be a folder beside a dockerStartCmd; there is none at {path}")
    return str(path)


def _handler(image: str, field: str, base: Path, roots: tuple[Path, ...]) -> str:
    """`local:handlers/echo.py:handler` as `/abs/handlers/echo.py:handler`."""
    given, _, attribute = image.removeprefix(LOCAL).rpartition(":")
    if not image.startswith(LOCAL) or not given.endswith(".py") or not attribute.isidentifier():
        raise PlaceError(
            f'{field} must read "local:<path>.py:<name>", or "local:<folder>" beside a dockerStartCmd, or'
            f" name an image by its tag or digest; got {shown(image)}"
        )
    path = _allowed(base, given, roots, field)
    if not path.is_file():
        raise PlaceError(f"{field} must be a file; there is none at {path}")
    return f"{path}:{attribute}"


def _allowed(base: Path, given: str, roots: tuple[Path, ...], field: str) -> Path:
    try:
        path = (base / given).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a ring, no path at all
        raise PlaceError(f"{field} names no place: {error}; got {shown(given)}") from None
    if not any(path.is_relative_to(root) for root in roots):
        allowed = ", ".join(str(root) for root in roots) or "none; add local_roots = [...]"
        raise PlaceError(f"{field} must lie below a folder of local_roots; got {path}; allowed: {allowed}")
    return path
