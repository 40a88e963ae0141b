"""The interface to the Hugging Face hub that `stoker weights lock` reads: a repository at a commit. The
command line implements the interface; this package opens no connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of the hub. `sha256` is known for large files only, which the hub stores with a digest."""

    path: str
    size: int | None
    sha256: str | None


class Hub(Protocol):
    """Raises WeightsError for what cannot be read."""

    def resolve(self, repo: str, revision: str | None) -> tuple[str, tuple[HubFile, ...]]:
        """Returns the commit that a revision names (None: the newest), and the files at that commit."""

    def read(self, repo: str, path: str, commit: str) -> bytes:
        """Returns the content of a small file."""
