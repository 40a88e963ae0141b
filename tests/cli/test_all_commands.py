"""What holds of every command, whatever it does."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stoker import __version__
from stoker.cli.main import main
from tests.cli.every_command import COMMANDS, EXAMPLES

LISTS = [command_line for command_line in COMMANDS if command_line.split()[-1] in {"list", "audit", "bill"}]


@pytest.mark.parametrize("command_line", LISTS)
def test_every_list_can_be_had_as_json(command_line: str) -> None:
    assert "--json" in {flag for option in COMMANDS[command_line].params for flag in option.opts}


@pytest.mark.parametrize("command_line", COMMANDS)
def test_the_help_shows_examples_that_can_be_typed(
    command_line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parsed as they stand: an unknown option, a wrong value or a missing argument raises."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for file in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / file).touch()
    assert EXAMPLES[command_line], f"`stoker {command_line} --help` shows no example"
    with pytest.raises(SystemExit):
        COMMANDS[command_line].main(["--help"])
    shown = capsys.readouterr().out
    for line in EXAMPLES[command_line]:
        typed = shlex.split(line)
        assert typed[: len(command_line.split()) + 1] == ["stoker", *command_line.split()]
        COMMANDS[command_line].make_context(command_line, typed[len(command_line.split()) + 1 :])
        assert f" {line} " in shown, "it is on one line of a terminal"


def test_the_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"stoker {__version__}\n"


IN_BASH = """
script=$(stoker --show-completion) || exit
eval "$script"
COMP_WORDS=({words}) COMP_CWORD={at}
$(complete -p stoker | sed -n 's/.* -F \\([^ ]*\\) .*/\\1/p') stoker
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def bash(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """With a `stoker` as pip writes it."""
    command = folder / "stoker"
    command.write_text(f"#!{sys.executable} -P\nfrom stoker.cli.__main__ import main\nmain()\n")
    command.chmod(0o755)
    return subprocess.run(
        ["bash", "--norc", "-c", script],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("command_line", "expected"), [("stoker jo", {"job"}), ("stoker job st", {"status", "stream"})]
)
def test_bash_completes_arguments(tmp_path: Path, command_line: str, expected: set[str]) -> None:
    ended = bash(tmp_path, IN_BASH.format(words=command_line, at=len(command_line.split()) - 1))
    assert set(ended.stdout.split()) == expected, ended.stderr


def test_completion_is_installed_for_bash(tmp_path: Path) -> None:
    ended = bash(tmp_path, "shown=$(stoker --install-completion); echo $shown")
    assert "bash completion installed" in ended.stdout, ended.stderr
    assert "stoker" in (tmp_path / ".bashrc").read_text()
