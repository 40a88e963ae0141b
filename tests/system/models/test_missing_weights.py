"""A host with a GPU (a stand-in for its driver) and no weights: jobs wait and say why, and a stopped command
leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml_stand_in import on_a_host
from tests.system.stack import SOURCE, Stack, until

PATIENCE_S = 240.0
WHY = "this host has a GPU and no weights for text-to-image, and serves a small pipeline only where"
HELP = "Get them with: stoker weights fetch flux-1-schnell"


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    on_a_host(tmp_path, monkeypatch, "two")
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path / "weights"))
    made = Stack(tmp_path, hosted=("text-to-image",))
    made.pipelines = ""
    made.start()
    yield made
    made.stop()


@pytest.mark.slow
def test_the_command_says_what_is_missing_and_takes_its_job_along(stack: Stack, tmp_path: Path) -> None:
    with open(tmp_path / "said", "wb") as log_file:
        command = ["image", "a lighthouse", "-o", "out.png", "--url", stack.facts["http"]]
        image = subprocess.Popen(
            [sys.executable, "-P", "-m", "stoker.cli", *command],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "STOKER_API_KEY": stack.key},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stderr=log_file,
        )
    try:
        until(
            lambda: HELP in (tmp_path / "said").read_text() or image.poll() is not None,
            PATIENCE_S,
            "a command that says what is missing",
            (tmp_path / "said").read_text,
        )
        image.send_signal(signal.SIGTERM)
        assert image.wait(60) == 1
    finally:
        image.kill()
        image.wait()
    reported = (tmp_path / "said").read_text()
    assert WHY in reported
    [job] = stack.http.get("/text-to-image/requests").json()["requests"]
    assert job["status"] == "CANCELLED"
    assert f"stoker: cancelled job {job['id']}" in reported
    assert not (tmp_path / "weights" / "flux-tiny").exists(), "nothing was made up"
    assert "serves" not in stack.http.get("/text-to-image/health").json()
