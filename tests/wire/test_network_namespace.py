"""The name of a network namespace: the same for all that share a loopback, and for nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stoker.wire import network_namespace as module
from stoker.wire.network_namespace import network_namespace

PRINTS = "from stoker.wire.network_namespace import network_namespace; print(network_namespace())"


def printed(*before: str) -> str:
    command = [*before, sys.executable, "-P", "-c", PRINTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and before:
        pytest.skip(f"no namespace can be made here: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


def test_another_process_of_this_host_has_the_same() -> None:
    assert len(network_namespace()) == 64
    assert printed() == network_namespace()


def test_another_namespace_of_this_host_has_another() -> None:
    assert printed("unshare", "--net") not in ("", network_namespace())


def test_another_boot_has_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "boot_id").write_text("f2c8a1de-0000-4000-8000-000000000000\n")
    here = network_namespace()
    monkeypatch.setattr(module, "_BOOT", tmp_path / "boot_id")
    assert network_namespace() not in ("", here)


def test_a_kernel_that_does_not_tell_shares_with_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BOOT", Path("/proc/nothing"))
    assert network_namespace() == ""
