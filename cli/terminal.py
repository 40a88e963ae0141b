"""Output of commands: consoles that print text as it is, without markup, and the log on stderr.

Much of it is text of handlers, callers and servers, and a terminal obeys what it is sent: it can be made to
lie, to write to the clipboard or to answer as if the user typed. So all text passes `shown`, in a pipe, too:
what is in a file is shown in a terminal later.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

NOISY = ("botocore", "boto3", "urllib3", "s3transfer", "httpx2", "uvicorn")
"""Loggers that log only warnings and errors."""


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 without tabs and ends of lines, DEL, and C1, in which one character begins an escape sequence, too."""


def shown(text: str) -> str:
    """Returns the text with control characters written out, such as `\\x1b`."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def json_text(value: object, *, indent: bool = False) -> str:
    """Returns JSON with all control characters escaped, which JSON itself does not demand of DEL and C1."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if indent else None)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_text(text: str, *, to_stderr: bool = False) -> None:
    print(shown(text), file=sys.stderr if to_stderr else sys.stdout, flush=True)


_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}


class _PlainConsole(Console):
    """A console that writes out the control characters of text; styles and movements of the cursor are the
    console's own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text), segment.style)


class _LastingConsole(_PlainConsole):
    """A console for a process that others depend on: when the output is closed or its disk is full, the text
    is lost, and the process goes on."""

    def print(self, *objects: Any, **options: Any) -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the file is closed in this process
            super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Prints nothing more. Otherwise the process would exit."""
        self.quiet = True


def plain_console(*, stderr: bool = False, file: TextIO | None = None, width: int | None = None) -> Console:
    return _PlainConsole(stderr=stderr, file=file, width=width, **_PLAIN)


def lasting_console(*, file: TextIO | None = None) -> Console:
    return _LastingConsole(file=file, **_PLAIN)


def log_to_stderr(level: int, lines: logging.Formatter | None = None) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if lines is not None:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(lines)
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
