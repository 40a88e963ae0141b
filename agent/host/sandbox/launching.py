"""Starts the first program of a worker (`stoker.worker.launch`) and writes its instructions.

The program reads the instructions from a memfd on standard input, because it takes on the worker's
environment only in its last step.
"""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import stoker
from stoker.agent.host.sandbox.isolation import SHARED_UMASK, SandboxPlan

LAUNCH = Path(stoker.__file__).parent / "worker" / "launch.py"


def order(
    plan: SandboxPlan,
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    cgroup: Path | None = None,
) -> dict[str, Any]:
    """Returns the instructions. `cgroup` is the file by which a process enters its cgroup."""
    return {
        "parent": os.getpid(),
        "cgroup": None if cgroup is None else str(cgroup),
        "mount": None if plan.mount is None else [plan.mount.source, plan.mount.target],
        "limits": {name: list(pair) for name, pair in plan.rlimits.items()},
        "user": None if plan.user is None else [*plan.user, list(plan.groups)],
        "umask": SHARED_UMASK if plan.groups else None,
        "folder": "/" if plan.wrapper else str(folder),
        "command": [*plan.wrapper, *command],
        "environment": dict(environment),
    }


def launch(
    order: Mapping[str, Any], marks: Mapping[str, str], output: int, fds: Sequence[int] = (), **popen: Any
) -> subprocess.Popen[bytes]:
    """Starts the program with its instructions. Raises OSError."""
    memory = os.memfd_create("order", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(marshal.dumps(dict(order)))
        os.lseek(memory, 0, os.SEEK_SET)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(LAUNCH)],
            cwd="/",
            env=dict(marks),
            stdin=memory,
            stdout=output,
            stderr=output,
            pass_fds=tuple(fds),
            start_new_session=True,
            **popen,
        )
    finally:
        os.close(memory)
