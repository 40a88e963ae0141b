"""What a bench writes beside its figures: the machine, the commit, and how busy other processes kept it."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent


def hardware() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "cpu": cpu_name(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def cpu_name() -> str:
    """As Linux has it; elsewhere the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def commit(*measured: str) -> str | None:
    """The commit checked out, with `+` where a file that git tracks under `measured` has been changed since.

    The paths are relative to bench/. None where there is no git.
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
    """Seconds of CPU time that all processes but this one have used."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system) - time.process_time()
