"""The folder of a network volume on this node: one folder below the operator's volume root for each volume.

    --volume-root /mnt/volumes ── volume "weights" ──> /mnt/volumes/weights ──> /runpod-volume of the worker

- A name is one name, never a path. The folder is made when a worker first wants it, and removed when control
  says that the volume is gone (`agent.volume_watch`).
- Workers that have users of their own share it by a group. The group's number is computed from the volume's
  name: it is the same on all nodes that share the folder, and no worker of another volume is in it.
- A link in its place is refused: whoever writes in the root could else hand out any folder of the host.

Not here: how a worker comes to see it (`agent.isolation`; `agent.container_plan` for containers).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from stoker.agent.seams import SpawnFailed

MOUNT_POINT = "/runpod-volume"
"""Where handlers of the field look for it."""

VOLUME_PATH = "STOKER_VOLUME_PATH"
"""Tells a worker where its volume really is."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def group(name: str) -> int:
    """Of the volume's folder and of whoever may use it: above all ids that hosts give to users and groups."""
    return 1 << 30 | int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 2


def folder(root: Path | None, name: str) -> Path:
    """The volume's folder, of mode 0770 where it is new. Raises SpawnFailed with a sentence."""
    if root is None:
        raise SpawnFailed(
            f"volume {name} has no place here: this node has no volume root"
            " (start its agent with --volume-root, or STOKER_VOLUME_ROOT)"
        )
    if not is_name(name):
        raise SpawnFailed(f"{name!r} cannot name a volume: letters, digits, '.', '_' and '-' only")
    path = root / name
    try:
        if not path.is_symlink() and not path.exists():
            with suppress(FileExistsError):  # a pod's thread made it meanwhile, or another node
                path.mkdir(mode=0o770)
                path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o770)  # whatever the umask is
        mode = path.lstat().st_mode
    except OSError as error:
        raise SpawnFailed(f"volume {name} has no folder {path}: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise SpawnFailed(f"volume {name}: {path} is no folder")
    return path


def shared(root: Path | None, name: str, group: int | None) -> Path:
    """The same folder; `group` may write to it, None leaves that as it is. Raises SpawnFailed."""
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
