"""A stand-in for the NVIDIA library, built from agent/host/devices/fake_nvml.c, and the file that steers
it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "agent" / "host" / "devices" / "fake_nvml.c"


def build(folder: Path) -> Path:
    """Returns the folder for LD_LIBRARY_PATH, which the loader reads when a process starts."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build a stand-in for the NVIDIA library")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O", "-o", str(library), str(SOURCE)], check=True)
    return folder


class Driver:
    """What the stand-in tells from its next call on. `environment` is for the process that shall see it."""

    def __init__(self, library: Path, state: Path, host: str = "two") -> None:
        self._state = state
        self.environment = {
            "LD_LIBRARY_PATH": str(library),
            "FAKE_NVML": host,
            "FAKE_NVML_STATE": str(state),
        }
        self.tells()

    def tells(self, *lines: str) -> None:
        """All that holds now, and all Xids until now: see the head of fake_nvml.c."""
        fresh = self._state.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self._state)


def on_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Every process that starts from now on runs on such a host; `FAKE_NVML` changes that for one."""
    (tmp_path / "nvml").mkdir()
    driver = Driver(build(tmp_path / "nvml"), tmp_path / "nvml" / "state", host)
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
