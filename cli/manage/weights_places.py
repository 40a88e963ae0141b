"""The places that `stoker weights` reads: the hub of HF_ENDPOINT with HF_TOKEN, or a mirror instead.

A mirror is a folder, or `s3://bucket/prefix` in the object store of `[s3]` in the configuration or of
STOKER_S3_* in the environment. It contains `<model>/<path>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from stoker.agent.weights.fetching import bring_file
from stoker.agent.weights.interfaces import WeightsFailed
from stoker.agent.weights.sources import HUB_ENDPOINT, Hub, Mirror, folder_mirror, place_of
from stoker.cli.agent.weights import S3, bucket_mirror
from stoker.cli.control.weights import locked_entry, locked_file
from stoker.cli.errors import CliError
from stoker.models.weights import FOLDER, Entry, HubFile, LockedFile, WeightsError
from stoker.outbound.errors import FetchFailed, OutboundError
from stoker.outbound.hub import HubReader

REFUSED = (401, 403)


def hub_of(environ: Mapping[str, str]) -> Hub:
    """Returns the hub of this environment."""
    endpoint = environ.get("HF_ENDPOINT") or HUB_ENDPOINT
    return Hub(endpoint, environ.get("HF_TOKEN", ""), reader="this environment")


def mirror_of(mirror: str | None, config: Path | None, environ: Mapping[str, str]) -> Mirror | None:
    """Returns the mirror; None for the hub. Raises CliError."""
    if mirror is None:
        return None
    if not mirror.startswith(S3):
        folder = Path(mirror)
        if not folder.is_dir():
            raise CliError(f"the mirror {mirror} is not a folder")
        return folder_mirror(folder)
    from stoker.cli.control import s3_settings
    from stoker.control.config.config import load_config

    known = s3_settings.from_config(load_config(config)) or s3_settings.from_environment(environ)
    if known is None:
        raise CliError(f"to read {mirror}, name its object store in [s3] of stoker.toml or in STOKER_S3_*")
    return bucket_mirror(mirror, known)


def bring(
    entry: Entry,
    file: LockedFile,
    to: Path,
    hub: Hub,
    mirror: Mirror | None,
    arrived: Callable[[int], None],
) -> str:
    """Brings a file of an entry to a path as agents do, and returns its sha256, the locked one. Raises
    WeightsError."""
    if mirror is None:
        _check_origin(entry, file)
    wanted = locked_file(file)
    try:
        place = place_of(locked_entry(entry), wanted, hub, mirror)
        bring_file(place, wanted, to, arrived)
    except (WeightsFailed, OutboundError) as failed:
        raise WeightsError(f"cannot fetch {entry.name}: {failed}") from failed
    return wanted.sha256


def _check_origin(entry: Entry, file: LockedFile) -> None:
    origin = entry.origin_of(file)
    if origin.source == FOLDER:
        raise WeightsError(
            f"{entry.name} was locked from a folder, and no hub has it: give the folder that holds the folder"
            f" {entry.name} with --mirror"
        )
    if origin.commit is None:
        raise WeightsError(f"{entry.name}: its commit is unknown; run: stoker weights lock {entry.named}")


class ListedHub:
    """Implements `stoker.models.weights.Hub`."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._reader = hub, HubReader(hub.endpoint, hub.token)

    def resolve(self, repo: str, revision: str | None) -> tuple[str, tuple[HubFile, ...]]:
        try:
            commit, files = self._reader.list(repo, revision)
        except (FetchFailed, OSError) as failed:
            raise self._said(repo, f"list {repo}", failed) from failed
        return commit, tuple(HubFile(file.path, file.size, file.sha256) for file in files)

    def read(self, repo: str, path: str, commit: str) -> bytes:
        try:
            return self._reader.content(repo, path, commit)
        except (FetchFailed, OSError) as failed:
            raise self._said(repo, f"read {path} of {repo}", failed) from failed

    def _said(self, repo: str, what: str, failed: Exception) -> WeightsError:
        hint = self._hub.hint(repo) if isinstance(failed, FetchFailed) and failed.status in REFUSED else ""
        return WeightsError(f"cannot {what}: {failed}{hint}")
