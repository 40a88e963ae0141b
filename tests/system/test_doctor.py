"""`stoker doctor` as a process of its own, of a real control that serves and one that is dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stoker import __version__
from tests.certificates import make_certificate
from tests.nvml_stand_in import Driver, build
from tests.system.faults.small_disk import small_disk
from tests.system.stack import SOURCE, START_S, Stack

pytestmark = pytest.mark.slow


def doctor(stack: Stack, *options: str, **variables: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """The exit status, and by check what was found: level and sentence."""
    command = [sys.executable, "-P", "-m", "stoker.cli", "doctor", "--json", *options]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    ended = subprocess.run(
        command,
        env={**environ, "PYTHONPATH": str(SOURCE), "STOKER_API_KEY": stack.key, **variables},
        cwd=stack.folder,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert ended.stderr == "", ended.stderr
    found: dict[str, list[tuple[str, str]]] = {}
    records: list[dict[str, Any]] = json.loads(ended.stdout)
    for one in records:
        found.setdefault(one["check"], []).append((one["level"], one["found"]))
    return ended.returncode, found


def test_a_control_that_serves_and_then_is_dead(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    try:
        stack.start_control()
        asked = ["--url", stack.facts["http"], "--control", stack.facts["grpc"]]
        status, found = doctor(stack, *asked)
        assert found["control"] == [
            ("ok", f"{stack.facts['http']} answers, version {__version__}"),
            ("ok", f"agents reach {stack.facts['grpc']}"),
        ]
        assert found["clock"][0][0] == "ok"
        assert found["configuration"] == [("ok", str(stack.config))]
        assert "failed" not in {level for one in found.values() for level, _ in one}, found
        assert status == 0
        stack.kill("control")
        status, found = doctor(stack, *asked)
        assert [level for level, _ in found["control"]] == ["failed", "failed"]
        assert "refused" in found["control"][0][1]
        assert status == 1
    finally:
        stack.stop()


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    with small_disk(tmp_path / "disk", 64) as disk:
        disk.fill()
        status, found = doctor(stack, "--data-dir", str(disk.folder / "data"))
    assert (found["disk"][0][0], status) == ("failed", 1)
    assert f"0 MiB of 64 MiB are free for {disk.folder / 'data'}, 1.0 GiB are needed" == found["disk"][0][1]


def test_a_certificate_that_has_ended(tmp_path: Path) -> None:
    make_certificate(tmp_path, timedelta(days=-2))
    stack = Stack(tmp_path, '[tls]\ncert = "cert.pem"\nkey = "key.pem"\n')
    authority = ["--tls-ca", str(tmp_path / "cert.pem")]
    try:
        command = stack._control_command()
        stack.control, stack.facts = stack._start(command, "control", stack._control_variables())
        asked = ["--url", stack.facts["http"], "--control", stack.facts["grpc"]]
        status, found = doctor(stack, *asked, *authority)
    finally:
        stack.stop()
    levels = [level for level, _ in found["certificates"]]
    assert levels == ["failed", "ok", "failed"], found[
        "certificates"
    ]  # the certificate, its key, the authority
    assert "certificate has expired" in found["control"][0][1]
    assert "certificate has expired" in found["control"][1][1]
    assert status == 1


@pytest.mark.parametrize(
    ("built_for", "expected"),
    [
        ("None", ("failed", "torch 2.13.0 is built for the CPU, and a GPU is here")),
        ("'99.1'", ("failed", "torch 2.13.0 is built for CUDA 99.1, the driver has ")),
        ("'1.0'", ("ok", "torch 2.13.0 is built for CUDA 1.0, the driver has ")),
    ],
)
def test_gpus_and_a_torch(tmp_path: Path, built_for: str, expected: tuple[str, str]) -> None:
    """Stand-ins for the driver and for the file in which torch says what it is."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.13.0'\ncuda = {built_for}\n")
    driver = Driver(build(tmp_path), tmp_path / "state")
    variables = {**driver.environment, "PYTHONPATH": f"{tmp_path}:{SOURCE}"}
    _, found = doctor(Stack(tmp_path), **variables)
    assert found["driver"][0][0] == "ok", found["driver"]
    level, sentence = found["cuda"][0]
    assert (level, sentence[: len(expected[1])]) == expected
