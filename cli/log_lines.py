"""The log of `stoker control` and `stoker agent`: its lines as text, or as JSON, with the time's zone.

A line that belongs to a request of a caller has the request's id, which the caller got as `X-Request-Id`.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from stoker.cli.terminal import log_to_stderr


class Format(StrEnum):
    """The forms of a line."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """The least that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogFormat = Annotated[
    Format,
    typer.Option("--log-format", envvar="STOKER_LOG_FORMAT", help="Lines as text, or as JSON objects."),
]
LogLevel = Annotated[
    Level, typer.Option("--log-level", envvar="STOKER_LOG_LEVEL", help="The least that is logged.")
]


class TextLines(logging.Formatter):
    """A line of text: time, level, logger and message, and the id of the request behind it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _time(record).isoformat(" ", "milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        request = getattr(record, "request", "")
        return f"{line} [request {request}]" if request else line


class JsonLines(logging.Formatter):
    """A JSON object on a line of its own: whatever a message contains, it is one line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record).isoformat("T", "milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request := getattr(record, "request", ""):
            line["request"] = request
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_lines(form: Format, level: Level) -> None:
    """Begins the log of this process."""
    log_to_stderr(getattr(logging, level.name), JsonLines() if form is Format.JSON else TextLines())


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created).astimezone()
