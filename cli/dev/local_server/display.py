"""Output of the local server: the table of endpoints, problems, and the lines of calls as they happen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from stoker.cli.consoles import print_table
from stoker.cli.dev.local_server.routing import LocalRoute
from stoker.cli.terminal import json_text
from stoker.client import Event
from stoker.client.apps.definition import Definition
from stoker.client.apps.resources import LIVE_PREFIX
from stoker.client.apps.scanned import Problem

CHARACTERS = 2_000
"""How much of one progress value or partial output is shown."""

COLORS = ("cyan", "magenta", "green", "blue", "yellow")


class Display:
    """The terminal of the local server. Lines of different calls do not mix; each begins with its endpoint's
    name."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._console, self._clock = console, clock
        self._colors: dict[str, str] = {}

    def say(self, text: str, style: str = "") -> None:
        """Prints a message of the server itself."""
        self._console.print(Text(f"stoker: {text}", style), soft_wrap=True)

    def endpoints(self, routes: Sequence[LocalRoute], url: str) -> None:
        rows, named = [], ""
        for one in routes:
            name = LIVE_PREFIX + one.served.name
            first = name != named
            where = hardware(one.served.definition)
            rows.append(
                (name if first else "", where if first else "", f"{one.method} {one.path}", one.summary)
            )
            named = name
        print_table(self._console, ("endpoint", "runs on", "route", "does"), rows)
        self._console.print(Text(f"{url}   documentation: {url}/docs   Ctrl-C ends it"), soft_wrap=True)

    def problems(self, problems: Sequence[Problem]) -> None:
        for one in problems:
            self._console.print(Text(str(one), "red"), soft_wrap=True)

    def line(self, name: str, text: str, style: str = "", at_ms: int | None = None) -> None:
        """Prints a line of a call, or about it. `at_ms`: when the line was printed, since the epoch; now,
        where that is not known."""
        at = time.strftime("%H:%M:%S", time.localtime(self._clock() if at_ms is None else at_ms / 1000))
        color = self._colors.setdefault(name, COLORS[len(self._colors) % len(COLORS)])
        self._console.print(
            Text.assemble((f"{at} ", "dim"), (f"{name} ", color), (text, style)), soft_wrap=True
        )

    def printed(self, name: str, event: Event) -> None:
        """Prints what an event of a log says: a line, or that some were left out."""
        if event.kind == "log":
            self.line(name, event.value["line"], at_ms=event.value.get("printedAt"))
        elif event.kind == "skipped":
            self.line(name, f"… {event.value['lines']} lines left out", "dim")

    def value(self, name: str, kind: str, value: Any) -> None:
        """Prints a progress value or a partial output."""
        self.line(name, f"{kind} {json_text(value)[:CHARACTERS]}", "dim")


def hardware(definition: Definition) -> str:
    match definition.cpu:
        case int() as cores:
            return f"{cores} CPUs" if cores > 1 else "1 CPU"
        case (_, *_) as instances:
            return ", ".join(instances)
        case ():
            return "CPU"
    if definition.gpu is None:
        return "GPU or CPU"
    count = f"{definition.gpu_count} × " if definition.gpu_count > 1 else ""
    return count + (", ".join(definition.gpu) or "GPU")
