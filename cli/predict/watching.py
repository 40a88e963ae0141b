"""`stoker predict --watch`: each run is a new process, so that nothing of an older version stays loaded."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from watchfiles import PythonFilter, run_process


def run_after_changes(folder: Path, arguments: Sequence[str]) -> None:
    """Runs `stoker` with these arguments, and again after each change of a Python file below `folder`; a run
    that has not ended is interrupted first. Returns after Ctrl-C."""
    print(f"watching {folder}; Ctrl-C ends it", file=sys.stderr)
    run_process(
        folder,
        target=shlex.join([sys.executable, "-m", "stoker.cli", *arguments]),
        target_type="command",
        watch_filter=PythonFilter(),
        callback=lambda changes: print(
            "changed: " + ", ".join(sorted({Path(path).name for _, path in changes})), file=sys.stderr
        ),
    )
