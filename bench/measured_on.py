"""The context of a benchmark's figures: the machine, the commit, and the load of other processes."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent


def hardware() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "cpu": cpu_name(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def machine(*measured: str) -> dict[str, Any]:
    """The hardware, the system and its load, and the commit of the files `measured` (see `commit`)."""
    return hardware() | {
        "system": f"{platform.system()} {platform.release()}",
        "load": [round(load, 2) for load in os.getloadavg()],
        "commit": commit(*measured),
    }


def cpu_name() -> str:
    """The CPU's name on Linux; elsewhere the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def commit(*measured: str) -> str | None:
    """The commit that is checked out, with `+` if a tracked file under `measured` has changed since.

    The paths are relative to bench/. None without git.
    """
    git = ["git", "-C", str(HERE)]
    changed = [*git, "status", "--porcelain", "-uno", "--", *measured]
    try:
        head, dirty = (
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            for command in ([*git, "rev-parse", "HEAD"], changed)
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if dirty else "")


def others() -> float:
    """The CPU time of all other processes, in seconds."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system) - time.process_time()
