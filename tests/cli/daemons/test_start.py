"""Control and the agent as whole processes: a command becomes one without its parser, and errors are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAYS_WHAT_IT_IS = """
import gc, os, sys
from stoker.cli.{of} import process

def run(options, variables):
    parser = "typer" in sys.modules
    frozen = gc.get_freeze_count() > 10_000
    print(options.data_dir, parser, sorted(variables), "STOKER_JOIN_TOKEN" in os.environ, frozen)

process.run = run
"""


def ended(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=folder,
        env={"PATH": "", "HOME": str(folder), "PYTHONPATH": ":".join([str(folder), *sys.path]), **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "more"), [("control", []), ("agent", ["--control", "127.0.0.1:9", "--probes", "127.0.0.1:0"])]
)
def test_the_process_has_its_options_and_no_parser(command: str, more: list[str], tmp_path: Path) -> None:
    """And what it imported is never collected. `sitecustomize` replaces only what it would run for ever."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'stoker.cli.daemons' in sys.orig_argv:\n"
        + "".join(f"    {line}\n" for line in SAYS_WHAT_IT_IS.format(of=command).splitlines())
    )
    said = ended(
        tmp_path, "-m", "stoker.cli", command, *more, "--data-dir", "mine", STOKER_JOIN_TOKEN="jt_1_2"
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.strip() == "mine False ['STOKER_JOIN_TOKEN'] False True"


def test_what_fails_is_one_sentence(tmp_path: Path) -> None:
    said = ended(tmp_path, "-m", "stoker.cli", "agent", "--control", "127.0.0.1:9")
    assert said.returncode == 1
    assert said.stderr.startswith("stoker: an agent joins with a token")
    assert said.stderr.count("\n") == 1
