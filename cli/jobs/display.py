"""What is told while a job is watched: one line that changes at a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from stoker.cli import job_words
from stoker.client import Event, JobRecord


class Board:
    """A state is told when it changes. `last_id` is the last event that has one: where to go on from."""

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

    def state(self, job: JobRecord) -> None:
        words = job_words.state(job)
        if words != self._state:
            self._state = words
            self._now(words)

    def event(self, event: Event) -> None:
        self.last_id = event.id or self.last_id
        words = job_words.happened(event)
        if event.kind == "progress":
            self._now(words)
        else:
            self.say(words)

    def say(self, words: str) -> None:
        """A line that stays."""
        self._console.print(words, soft_wrap=True)

    def product(self, text: str) -> None:
        """A line for standard output; above the changing line where that is the same terminal."""
        if self._live is not None and sys.stdout.isatty():
            self.say(text)
        else:
            print(text, flush=True)

    def _now(self, words: str) -> None:
        """What is so for the moment."""
        if self._live is None:
            self.say(words)
        else:
            self._live.update(_spinner(words, self._console.width), refresh=True)


def _live(console: Console) -> Live:
    """It takes neither standard stream over, as it would by itself: what is piped stays in its pipe."""
    return Live(
        _spinner("looking", console.width),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _spinner(words: str, width: int) -> Spinner:
    text = Text(words)
    text.truncate(width - len("⠋ "), overflow="ellipsis")
    return Spinner("dots", text)
