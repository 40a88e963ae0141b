"""Text in the output of commands, and the log on stderr. `consoles` prints tables and bars.

Much of it is text of handlers, callers and servers, and a terminal obeys what it is sent: it can be made to
lie, to write to the clipboard or to answer as if the user typed. So all text passes `shown`, in a pipe, too:
what is in a file is shown in a terminal later.
"""

from __future__ import annotations

import json
import logging
import re
import sys

NOISY = ("botocore", "urllib3", "s3transfer", "httpx2", "uvicorn")
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


def log_to_stderr(level: int, lines: logging.Formatter | None = None) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if lines is not None:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(lines)
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
