"""The public door is small and complete, and opening it costs little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stoker import worker
from stoker.worker import testing

SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_the_door_is_what_it_says() -> None:
    assert worker.__all__ == sorted(worker.__all__)
    offered = {
        name
        for name, value in vars(worker).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("stoker.worker.")
    }
    assert offered == set(worker.__all__)
    assert testing.__all__ == ["LocalFile", "LocalJob", "LocalSave"]


def test_opening_it_imports_no_loop_and_nothing_outside_the_standard_library() -> None:
    """Start-up time is a promise: see `runtime`."""
    code = (
        "import sys, stoker.worker.runtime\n"
        "tops = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "print(sorted(tops), {'asyncio', 'ssl', 'email', 'http'} & set(sys.modules))\n"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-P", "-S", "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    assert done.stdout == "['__main__', 'stoker'] set()\n"
