"""Nothing of the hosted models forgets which device it is on: the whole jobs, where there is a second one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).parent / "checks_another_device.py"


@pytest.mark.slow
def test_both_models_run_on_another_device(tmp_path: Path) -> None:
    command = [sys.executable, "-P", str(CHECKS), str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "is given tensors of cpu and elsewhere" in found.pop("a forgotten move")
    assert "a generator of cpu" in found.pop("a generator of the cpu")
    assert found == dict.fromkeys(found)
    assert len(found) == 4
