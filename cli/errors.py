"""The error that ends a command with a message and exit status 1. Unexpected errors show a traceback."""

from __future__ import annotations


class CliError(Exception):
    """The command cannot do what was requested; the message is a sentence for its user."""
