"""The end of a command that failed: a sentence on stderr and status 1, where its error is meant for whoever
typed the command. All other errors show a traceback."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stoker.cli import extras
from stoker.cli.errors import CliError
from stoker.cli.expected_errors import is_expected
from stoker.cli.terminal import print_text


@contextmanager
def explained(typed: Sequence[str]) -> Iterator[None]:
    """Ends the process if the block raises such an error. `typed` are the words of the command."""
    try:
        yield
    except Exception as error:
        message = _sentence(error, typed)
        if message is None:
            raise
        print_text(f"stoker: {message}", to_stderr=True)
        sys.exit(1)


def _sentence(error: Exception, typed: Sequence[str]) -> str | None:
    """Returns what is printed of the error, or None."""
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("stoker"):
        return extras.missing_module_message(error.name, typed)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"there is no room on the disk: {error}"
    return str(error) if isinstance(error, CliError) or is_expected(error) else None
