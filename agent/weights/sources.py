"""The places of the files of an entry of weights: the hub, or a mirror instead of the hub. Pure.

    huggingface:OWNER/NAME at COMMIT ──> ENDPOINT/OWNER/NAME/resolve/COMMIT/PATH, with a token if given
    any, with a mirror               ──> MIRROR/ENTRY/PATH, in a folder, at a URL, or in a bucket

Control names entries and paths, so both are checked: neither leads out of the folder of weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from msgspec import Struct

from stoker.agent.weights.interfaces import WeightsFailed
from stoker.outbound.download import HttpFile, LocalFile, Source
from stoker.outbound.refused_addresses import redacted_url
from stoker.wire.messages import LockedWeights, WeightsFile
from stoker.wire.records import Hiding

HUB = "huggingface:"
HUB_ENDPOINT = "https://huggingface.co"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Place(Struct, frozen=True):
    """The place of one file. `said`: what is looked for, and where. `hint`: what to do where access is
    refused."""

    source: Source
    said: str
    hint: str = ""


class Hub(Hiding, frozen=True):
    """The hub's address, the token that it is read with, and the `reader` that has the token."""

    HIDDEN = ("token",)

    endpoint: str = HUB_ENDPOINT
    token: str = ""
    reader: str = "this agent"

    def place(self, file: WeightsFile, source: str, name: str, commit: str) -> Place:
        repository = source.removeprefix(HUB)
        if not _REPOSITORY.fullmatch(repository) or not _REVISION.fullmatch(commit):
            raise WeightsFailed(f"{file.path} has no repository and commit that can be read", definite=True)
        url = f"{self.endpoint.rstrip('/')}/{repository}/resolve/{commit}/{quote(name)}"
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return Place(
            HttpFile(url, headers), f"{name} of {repository} at {commit[:12]}", self.hint(repository)
        )

    def hint(self, repository: str) -> str:
        """Returns what to do where access to the repository is refused."""
        has = f"HF_TOKEN of {self.reader} may not read it" if self.token else f"{self.reader} has no HF_TOKEN"
        page = f"{self.endpoint.rstrip('/')}/{repository}"
        return f"; {has}, and the licence of {repository} may have to be accepted at {page}"


Mirror = Callable[[str], Place]
"""The place of `<entry>/<path>`. Raises WeightsFailed."""


def folder_mirror(folder: Path) -> Mirror:
    return lambda name: Place(LocalFile(folder / name), f"{name} in the mirror {folder}")


def url_mirror(url: str) -> Mirror:
    base = url.rstrip("/")
    return lambda name: Place(HttpFile(f"{base}/{quote(name)}"), f"{name} in the mirror {redacted_url(base)}")


def place_of(entry: LockedWeights, file: WeightsFile, hub: Hub, mirror: Mirror | None) -> Place:
    """Raises WeightsFailed where no place can have it."""
    if mirror is not None:
        return mirror(f"{entry.name}/{file.path}")
    source, name, commit = entry.source, file.path, entry.commit
    if file.source:
        source, name, commit = file.source, file.name or file.path, file.commit
    if not source.startswith(HUB):
        raise WeightsFailed(
            "they were locked from a folder, and no hub has them: set STOKER_WEIGHTS_MIRROR of this agent",
            definite=True,
        )
    _check_path(name)
    return hub.place(file, source, name, commit)


def check(entry: LockedWeights) -> None:
    """Raises WeightsFailed for an entry that may not be fetched."""
    if not _NAME.fullmatch(entry.name):
        raise WeightsFailed("their name cannot be that of a folder", definite=True)
    if not entry.files or len({file.path for file in entry.files}) < len(entry.files):
        raise WeightsFailed("their lock names no files, or one twice", definite=True)
    for file in entry.files:
        _check_path(file.path)
        if not file.sha256:
            raise WeightsFailed(
                f"the digest of {file.path} is unknown; fill the lock with: stoker weights lock {entry.name}",
                definite=True,
            )


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\x00" in path:
        raise WeightsFailed(f"{path!r} is not a path below their folder", definite=True)
    if PurePosixPath(path).as_posix() != path:
        raise WeightsFailed(f"{path!r} is not a plain path", definite=True)
