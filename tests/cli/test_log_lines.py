"""Lines of the log: as text and as JSON, with the zone of their time and the request behind them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.log_lines import NAMED, JsonLines, TextLines, ids_of


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


def named(message: str, *args: object) -> dict[str, object]:
    made = logging.LogRecord("stoker", logging.INFO, "f.py", 1, message, args, None)
    line: dict[str, object] = json.loads(JsonLines().format(made))
    assert line.pop("message") == message % args
    return {name: value for name, value in line.items() if name not in ("time", "level", "logger")}


@pytest.mark.parametrize(
    ("message", "args", "ids"),
    [
        (
            "worker %s of endpoint %s is withdrawn from node %s: %s",
            ("w1", "echo", "gpu-1", "no start"),
            {"worker": "w1", "endpoint": "echo", "node": "gpu-1"},
        ),
        ("session %d of node %s is over: %s", (7, "n", "x"), {"session": 7, "node": "n"}),
        ("the end of node %s's session: %s", ("n", "x"), {"node": "n"}),
        ("%d%% of the jobs of node %s, job %s", (5, "n", "j-1"), {"node": "n", "job": "j-1"}),
        ("worker %s starts again in %.1f s: %s", ("w1", 1.5, "x"), {"worker": "w1"}),
        ("job %s follows job %s", ("a", "b"), {"job": "a"}),
        ("nothing is named here: %s", ("job",), {}),
        ("job %s", (None,), {}),
    ],
)
def test_a_json_line_has_the_ids_that_it_names(
    message: str, args: tuple[object, ...], ids: dict[str, object]
) -> None:
    assert named(message, *args) == ids


@given(st.text(max_size=60), st.lists(st.integers() | st.text(max_size=8), max_size=4))
def test_no_message_breaks_the_search_for_ids(message: str, args: list[object]) -> None:
    made = logging.LogRecord("stoker", logging.INFO, "f.py", 1, message, tuple(args), None)
    assert set(ids_of(made)) <= set(NAMED)
