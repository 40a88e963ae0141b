"""What `bench/on_a_gpu.py` would run on a machine with a GPU, as far as a machine without one can: with only
the packages that are there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import on_a_gpu

ROOT = Path(__file__).parents[2]
ONLY = str(Path(__file__).with_name("only_packed.py"))
NO_GPU = "there is no NVIDIA GPU that torch"


def there(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, ONLY, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_the_tests_are_collected_with_what_is_there() -> None:
    done = there("-m", "pytest", "--collect-only", "-q", "-m", "gpu", *on_a_gpu.GPU_TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert {line.partition("::")[0] for line in found} == set(on_a_gpu.GPU_TESTS)


def test_no_test_for_a_gpu_is_left_out() -> None:
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.gpu" in path.read_text() and path != Path(__file__)
    }
    assert marked == set(on_a_gpu.GPU_TESTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("bench/models/text_to_image.py", "--gpu", "--profile", "exact"),
        ("bench/models/talking_video.py", "gpu", "--profile", "exact"),
        ("bench/models/reading_weights.py", "--cuda"),
    ],
)
def test_each_benchmark_gets_as_far_as_the_gpu(arguments: tuple[str, ...]) -> None:
    done = there(*arguments)
    assert (done.returncode, NO_GPU in done.stderr) == (1, True), done.stdout + done.stderr


@pytest.mark.slow
def test_a_talking_video_is_made_with_what_is_there() -> None:
    done = there("bench/models/talking_video.py", "tiny", "--seconds", "0.3")
    assert done.returncode == 0, done.stderr


def test_run_unpacks_the_wheels_and_replaces_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wheels = tmp_path / ".whl"
    monkeypatch.setattr(on_a_gpu, "WHEELS", wheels)
    monkeypatch.setattr(on_a_gpu, "SITE", wheels / "site")
    monkeypatch.setattr(sys, "argv", ["on_a_gpu.py", "test", "-x"])
    with pytest.raises(SystemExit, match=r"has no wheels: run `python bench/on_a_gpu\.py pack`"):
        on_a_gpu.main()
    wheels.mkdir()
    (wheels / "a-1-py3-none-any.whl").touch()
    installed: list[list[str]] = []
    replaced: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: installed.append(command))
    monkeypatch.setattr(os, "execv", lambda _, command: replaced.append(command))
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.chdir(tmp_path)
    on_a_gpu.main()
    assert installed[0][-3:] == ["--target", str(wheels / "site"), str(wheels / "a-1-py3-none-any.whl")]
    assert replaced == [[sys.executable, "-P", "-m", "pytest", "-m", "gpu", *on_a_gpu.GPU_TESTS, "-x"]]
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(wheels / "site"), str(ROOT / "src")]
    assert Path.cwd() == ROOT
    assert "torch 2" in capfd.readouterr().out


def test_pack_asks_for_what_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def download(command: list[str], check: bool) -> None:
        asked.append(command)
        on_a_gpu.WHEELS.mkdir()

    monkeypatch.setattr(on_a_gpu, "WHEELS", tmp_path / ".whl")
    monkeypatch.setattr(subprocess, "run", download)
    monkeypatch.setattr(sys, "argv", ["on_a_gpu.py", "pack", "3.12"])
    on_a_gpu.main()
    names = [one.partition("==") for one in asked[0] if "==" in one]
    assert [name for name, _, _ in names] == list(on_a_gpu.PACKED)
    assert asked[0][asked[0].index("--python-version") + 1] == "3.12"
