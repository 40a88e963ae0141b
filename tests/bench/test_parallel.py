"""Tests in several processes: each report arrives, and a process that dies fails the tests that it had."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

FILES = {
    "test_passes.py": "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_it(n): pass\n",
    "test_fails.py": "def test_it():\n    print('it was said')\n    assert 1 == 2\n",
    "test_dies.py": "import os\ndef test_it(): os._exit(3)\ndef test_after(): pass\n",
    "test_leaves.py": (
        "import os, signal\n"
        "def test_it():\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        signal.pause()\n"
        "    print('left', pid, file=open('left', 'w'))\n"
        "    os._exit(3)\n"
    ),
    "zoo/test_early.py": "def test_it():\n    with open('fifo', 'w') as fifo: fifo.write('it runs')\n",
    "test_late.py": "FOUND = open('fifo').read()\ndef test_it(): assert FOUND == 'it runs'\n",
}


def run(folder: Path, *names: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(FILES[name])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "parallel",
        "-p",
        "no:asyncio",
        "--processes",
        "3",
        *options,
        str(folder),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    with (folder / "output").open("w+") as output:
        ended = subprocess.run(
            [*command, f"--rootdir={folder}", f"--basetemp={folder / 'temporary'}"],
            env={**environment, "PYTHONPATH": str(TESTS)},
            cwd=folder,
            stdout=output,
            stderr=output,
            check=False,
        )
    return ended.returncode, (folder / "output").read_text()


def test_all_pass(tmp_path: Path) -> None:
    status, output = run(tmp_path, "test_passes.py")
    assert (status, "20 passed" in output) == (0, True), output


def test_files_for_which_no_time_is_left_are_named_and_do_not_run(tmp_path: Path) -> None:
    status, output = run(tmp_path, "test_passes.py", "test_fails.py", options=("--begin-within", "0"))
    left = re.findall(r"^LEFT OUT for lack of time: .*/(\w+\.py)$", output, re.MULTILINE)
    assert (status, sorted(left)) == (0, ["test_fails.py", "test_passes.py"]), output
    assert "passed" not in output


def test_a_failure_is_shown_with_what_it_printed(tmp_path: Path) -> None:
    status, output = run(tmp_path, "test_passes.py", "test_fails.py")
    assert (status, "1 failed, 20 passed" in output, "it was said" in output) == (1, True, True), output


def test_a_process_that_dies_fails_what_it_had(tmp_path: Path) -> None:
    status, output = run(tmp_path, "test_passes.py", "test_dies.py")
    unended = re.findall(
        "^test process [0-2] ended with status 3; this test has not ended$", output, re.MULTILINE
    )
    assert (status, len(unended)) == (1, 2), output


def test_a_process_that_leaves_another_behind_is_not_waited_for(tmp_path: Path) -> None:
    status, output = run(tmp_path, "test_passes.py", "test_leaves.py")
    os.kill(int((tmp_path / "left").read_text().split()[1]), signal.SIGKILL)  # it is still there
    assert status == 1
    assert "test_leaves.py::test_it - test process" in output


def test_those_of_one_folder_run_while_others_are_collected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # whoever opens one end waits for the other
    status, output = run(tmp_path, "zoo/test_early.py", "test_late.py", "test_fails.py")
    assert (status, "1 failed, 2 passed" in output) == (1, True), output
