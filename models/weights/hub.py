"""The Hugging Face hub: lists a repository at a commit, and downloads one file.

The library is imported when it is used, since an installation that has its weights does not need it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stoker.models.weights.lock import WeightsError


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of the hub. `sha256` is known for large files only, which the hub stores with a digest."""

    path: str
    size: int | None
    sha256: str | None


class Hub(Protocol):
    def resolve(self, repo: str, revision: str | None) -> tuple[str, tuple[HubFile, ...]]:
        """Returns the commit that a revision names (None: the newest), and the files at that commit."""

    def download(self, repo: str, path: str, commit: str, folder: Path) -> None:
        """Downloads `path` to `folder / path`. May leave its own files below `folder`, which `tidy`
        removes."""

    def tidy(self, folder: Path) -> None:
        """Removes what `download` left in the folder besides the weights."""


class HuggingFaceHub:
    """The hub of huggingface.co. Its library reads the token and the address from the environment."""

    def resolve(self, repo: str, revision: str | None) -> tuple[str, tuple[HubFile, ...]]:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HTTPError

        try:
            info = HfApi().model_info(repo, revision=revision, files_metadata=True)
        except (HTTPError, OSError) as error:
            raise WeightsError(f"cannot list {repo} at the hub: {error}") from error
        files = tuple(
            HubFile(found.rfilename, found.size, found.lfs.sha256 if found.lfs else None)
            for found in info.siblings or ()
        )
        return str(info.sha), files

    def download(self, repo: str, path: str, commit: str, folder: Path) -> None:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HTTPError

        try:
            hf_hub_download(repo, path, revision=commit, local_dir=folder)
        except (HTTPError, OSError) as error:
            raise WeightsError(f"cannot download {path} of {repo} at {commit}: {error}") from error

    def tidy(self, folder: Path) -> None:
        shutil.rmtree(folder / ".cache", ignore_errors=True)
