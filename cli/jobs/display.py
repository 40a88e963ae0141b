"""The display of a job while it is watched: a line that changes in place at a terminal, plain lines in a
pipe."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from stoker.cli.jobs import text as job_text
from stoker.cli.terminal import print_text
from stoker.client import Event, JobRecord


class JobDisplay:
    """A display that prints a state when it changes. `last_id` is the id of the last event, from which a
    stream can resume."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = _live(console) if console.is_terminal else None
        self._state = ""
        self.last_id = ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show_state(self, job: JobRecord) -> None:
        text = job_text.state(job)
        if text != self._state:
            self._state = text
            self._update(text)

    def show_event(self, event: Event) -> None:
        self.last_id = event.id or self.last_id
        text = job_text.happened(event)
        if event.kind == "progress":
            self._update(text)
        else:
            self.print_line(text)

    def print_line(self, text: str) -> None:
        """Prints a line that stays."""
        self._console.print(text, soft_wrap=True)

    def print_output(self, text: str) -> None:
        """Prints a line to standard output; above the changing line if both are the same terminal."""
        if self._live is not None and sys.stdout.isatty():
            self.print_line(text)
        else:
            print_text(text)

    def _update(self, text: str) -> None:
        """Replaces the changing line."""
        if self._live is None:
            self.print_line(text)
        else:
            self._live.update(_spinner(text), refresh=True)


def _live(console: Console) -> Live:
    """Does not redirect the standard streams, as Live does by default: a pipe must get its lines."""
    return Live(
        _spinner("looking"),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _spinner(text: str) -> Spinner:
    """Returns a spinner whose text is never truncated: a reason may end with an id."""
    return Spinner("dots", Text(text, overflow="fold"))
