"""What commands print to: consoles that print text as it is, without markup, and the log on stderr."""

from __future__ import annotations

import logging
from typing import TextIO

from rich.console import Console

NOISY = ("botocore", "boto3", "urllib3", "s3transfer", "httpx", "uvicorn")
"""Loggers that log only warnings and errors."""


def plain_console(*, stderr: bool = False, file: TextIO | None = None, width: int | None = None) -> Console:
    return Console(stderr=stderr, file=file, width=width, markup=False, emoji=False, highlight=False)


def log_to_stderr(level: int) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.WARNING)
