"""A terminal to see what a command shows, through tmux."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.stack import START_S, until

needs_tmux = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="there is no tmux here to see a terminal in"
)


class Terminal:
    """A terminal of tmux's, of a server of its own."""

    def __init__(self, folder: Path, below: Path, command: list[str], env: dict[str, str]) -> None:
        """Runs a command in the folder `below`; `env` is beside what tmux gives it."""
        self._socket = folder / "tmux"
        size = ["-x", "100", "-y", "40"]
        variables = [f"{name}={value}" for name, value in env.items()]
        line = shlex.join(["env", *variables, *command])
        self._tmux("-f", os.devnull, "new-session", "-d", *size, "-c", str(below), line)
        self._tmux("set-option", "remain-on-exit", "on")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-e")

    def shows(self, text: str) -> None:
        until(lambda: text in self._plain(), START_S, text, self._plain)

    def _plain(self) -> str:
        return self._tmux("capture-pane", "-p")

    def ends(self) -> None:
        """Waits for the end of the command; tmux says so here at once, and on the screen not always."""
        until(
            lambda: self._tmux("list-panes", "-F", "#{pane_dead}") == "1\n", START_S, "its end", self._plain
        )

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def close(self) -> None:
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, check=False)
