"""Lines of the log: as text and as JSON, with the zone of their time and the request behind them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime

from stoker.cli.log_lines import JsonLines, TextLines


def record(message: str, request: str = "", *, failed: bool = False) -> logging.LogRecord:
    info = None
    if failed:
        try:
            raise OSError("no disk")
        except OSError:
            info = sys.exc_info()
    made = logging.LogRecord("stoker.control", logging.WARNING, "f.py", 1, message, (), info)
    made.request = request
    return made


def test_a_json_line_is_one_line_whatever_it_says() -> None:
    text = JsonLines().format(record("two\nlines \x1b[31m", "mine", failed=True))
    assert "\n" not in text
    assert "\x1b" not in text
    line = json.loads(text)
    assert (line["level"], line["logger"], line["message"]) == (
        "warning",
        "stoker.control",
        "two\nlines \x1b[31m",
    )
    assert line["request"] == "mine"
    assert "OSError: no disk" in line["exception"]
    assert datetime.fromisoformat(line["time"]).tzinfo is not None
    assert "request" not in json.loads(JsonLines().format(record("x")))


def test_a_line_of_text_has_the_zone_and_the_request() -> None:
    text = TextLines().format(record("hello", "mine"))
    assert text.endswith(" WARNING stoker.control: hello [request mine]")
    assert datetime.fromisoformat(text.partition(" WARNING")[0]).tzinfo is not None
    assert TextLines().format(record("hello")).endswith(": hello")
