"""What ends a command with a sentence and exit status 1; anything else is a bug and shows its trace."""

from __future__ import annotations


class CliError(Exception):
    """The command cannot do what was asked; the text is a sentence for whoever typed it."""
