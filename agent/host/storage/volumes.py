"""The folders of network volumes on this node: one for each volume, in the operator's volume root.

    --volume-root /mnt/volumes ── volume "weights" ──> /mnt/volumes/weights ──> /runpod-volume of the worker

- A volume's name is never a path. The folder is created when a worker first needs it, and removed when
  control has deleted the volume (`agent.host.storage.volume_watch`).
- Workers that have users of their own share it by a group. The group's number is computed from the volume's
  name, so it is the same on all nodes that share the folder, and no worker of another volume is a member.
- A link instead of the folder is refused: otherwise anybody who can write to the root could give workers any
  folder of the host.

How a worker gets access to it is decided in `agent.host.sandbox.isolation`, and in
`agent.workers.containers.plan` for containers.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from stoker.agent.errors import SpawnFailed

MOUNT_POINT = "/runpod-volume"
"""Where RunPod handlers expect their volume."""

VOLUME_PATH = "STOKER_VOLUME_PATH"
"""The variable with the path of the worker's volume."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def group(name: str) -> int:
    """Returns the group id of a volume's folder and its workers. It is above all ids that hosts assign."""
    return 1 << 30 | int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 2


def folder(root: Path | None, name: str) -> Path:
    """Returns the volume's folder; creates it with mode 0770 if it is missing. Raises SpawnFailed."""
    if root is None:
        raise SpawnFailed(
            f"volume {name} cannot be stored here: this node has no volume root"
            " (start its agent with --volume-root, or STOKER_VOLUME_ROOT)"
        )
    if not is_name(name):
        raise SpawnFailed(f"{name!r} cannot name a volume: letters, digits, '.', '_' and '-' only")
    path = root / name
    try:
        if not path.is_symlink() and not path.exists():
            with suppress(FileExistsError):  # a pod's thread, or another node, created it meanwhile
                path.mkdir(mode=0o770)
                path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o770)  # whatever the umask is
        mode = path.lstat().st_mode
    except OSError as error:
        raise SpawnFailed(f"volume {name} has no folder {path}: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise SpawnFailed(f"volume {name}: {path} is not a folder")
    return path


def shared(root: Path | None, name: str, group: int | None) -> Path:
    """Returns the folder that `folder` makes, writable for `group`, unless that is None. Raises
    SpawnFailed."""
    path = folder(root, name)
    try:
        if group is not None and path.stat().st_gid != group:
            os.chown(path, -1, group)
            path.chmod(0o2770)
    except OSError as error:
        raise SpawnFailed(
            f"volume {name} cannot be shared: {path} cannot belong to group {group}: {error.strerror}"
        ) from None
    return path
