"""Lists a repository of the Hugging Face hub at a commit, and reads a small file of it. Synchronous.

A repository with a licence to accept, or a private one, needs a token; else the hub answers 401 or 403.
Large files are downloaded by `outbound.download`, whose rules for redirects and proxies hold here, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from stoker.outbound.download import HttpFile
from stoker.outbound.errors import FetchFailed

ANSWER_MAX = 64 << 20
"""The most bytes of a listing or of a small file."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a repository. Only large files have a `sha256`."""

    path: str
    size: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class HubReader:
    """A hub at an address, read with a token or ""."""

    endpoint: str
    token: str = field(default="", repr=False)

    def list(self, repository: str, revision: str | None) -> tuple[str, tuple[ListedFile, ...]]:
        """Returns the commit of the revision (None: the newest), and the files at that commit. Raises
        FetchFailed."""
        at = f"/revision/{quote(revision, safe='')}" if revision else ""
        url = f"{self.endpoint.rstrip('/')}/api/models/{quote(repository)}{at}?blobs=true"
        try:
            found = json.loads(self._read(url))
            return str(found["sha"]), tuple(map(_listed, found["siblings"]))
        except (ValueError, KeyError, TypeError) as error:
            raise FetchFailed(f"the hub's list of {repository} cannot be read: {error!r}") from None

    def content(self, repository: str, path: str, commit: str) -> bytes:
        """Returns a small file. Raises FetchFailed."""
        return self._read(f"{self.endpoint.rstrip('/')}/{repository}/resolve/{commit}/{quote(path)}")

    def _read(self, url: str) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        content = bytearray()
        with HttpFile(url, headers).rest(0) as rest:
            for chunk in rest.chunks:
                content += chunk
                if len(content) > ANSWER_MAX:
                    raise FetchFailed(f"the hub's answer has over {ANSWER_MAX >> 20} MiB")
        return bytes(content)


def _listed(found: dict[str, Any]) -> ListedFile:
    sha256 = (found.get("lfs") or {}).get("sha256")
    size = found.get("size")
    return ListedFile(str(found["rfilename"]), None if size is None else int(size), sha256)
