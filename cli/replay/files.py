"""The files that a job had fetched: found again by their sha256, among given ones or where they came from."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.cli.errors import CliError
from stoker.worker.frames import Frame
from stoker.worker.job.local_fetch import fetched_locally

FETCH_S = 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the case. `missing`: why it could not be had; empty where `path` is the file."""

    url: str
    path: str
    missing: str = ""


def find_files(
    wanted: Sequence[Mapping[str, Any]], given: Sequence[Path], folder: Path, *, fetch: bool
) -> list[Found]:
    """Returns each file of the case. Those that are fetched again are put into `folder`."""
    known = {_digest_of(path): path for path in given}
    return [
        Found(one["url"], str(known[one["sha256"]].absolute()))
        if one["sha256"] in known
        else _fetched(one, folder / str(n), fetch=fetch)
        for n, one in enumerate(wanted)
    ]


def _digest_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CliError(f"--file {path} cannot be read: {error.strerror}") from None


def _fetched(wanted: Mapping[str, Any], path: Path, *, fetch: bool) -> Found:
    url, size, sha256 = wanted["url"], wanted["size"], wanted["sha256"]
    if not fetch:
        return Found(url, "", f"no --file has its sha256, {sha256[:12]}…, and --fetch is not given")
    if not url.lower().startswith(("http://", "https://")):
        return Found(url, "", "only http and https are fetched again")
    fields = {"job": "", "attempt": 1, "n": 0, "url": url, "max_bytes": size, "timeout_s": FETCH_S}
    answer = fetched_locally(Frame("fetch", fields), network=True)
    try:
        if answer.fields.get("reason") == "too_large":
            return Found(url, "", f"it has changed: it has more than its {size} bytes now")
        if answer.fd is None:
            return Found(url, "", str(answer.fields["error"]))
        if answer.fields["sha256"] != sha256:
            return Found(url, "", f"it has changed: its sha256 is {answer.fields['sha256'][:12]}… now")
        with open(answer.fd, "rb", closefd=False) as source, path.open("xb") as file:
            source.seek(0)  # its digest was made of the same open file
            shutil.copyfileobj(source, file)
        return Found(url, str(path))
    finally:
        answer.close()
