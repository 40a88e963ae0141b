"""The log of `stoker control` and `stoker agent`: its lines as text, or as JSON, with the time's zone.

A line that belongs to a request of a caller has the request's id, which the caller got as `X-Request-Id`. A
line of JSON has the ids that its message names as fields of their own: a message `worker %s of endpoint %s`
gives `worker` and `endpoint`, so that whoever writes a line need not say them twice. Each line of JSON of an
agent has its `node`.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime
from enum import StrEnum
from typing import Any

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


NAMED = ("job", "attempt", "worker", "node", "endpoint", "webhook", "session")
"""The words before a placeholder whose value is an id."""

_PLACEHOLDER = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])")
_NAME = re.compile(rf"\b({'|'.join(NAMED)}) $")


def ids_of(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the ids that the record's message names, by what they are; of several jobs, the first."""
    found: dict[str, Any] = {}
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple):
        return found
    values = iter(record.args)
    for placeholder in _PLACEHOLDER.finditer(record.msg):
        if placeholder[0] == "%%":
            continue
        value = next(values, None)
        name = _NAME.search(record.msg, 0, placeholder.start())
        if name is not None and isinstance(value, str | int):
            found.setdefault(name[1], value)
    return found


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
            **ids_of(record),
        }
        if request := getattr(record, "request", ""):
            line["request"] = request
        if node := getattr(record, "node", ""):
            line.setdefault("node", node)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def note_node(node: str) -> None:
    """Gives every further record of this process's log a `node`: the id of the node that it is about."""
    make = logging.getLogRecordFactory()

    def noted(*args: object, **kwargs: object) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.node = node
        return record

    logging.setLogRecordFactory(noted)


def log_lines(form: Format, level: Level) -> None:
    """Begins the log of this process."""
    log_to_stderr(getattr(logging, level.name), JsonLines() if form is Format.JSON else TextLines())


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created).astimezone()
