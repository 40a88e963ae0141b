"""Text of handlers in a terminal: none of it is a command to that, whichever way it is printed."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stoker.cli import consoles, tables
from stoker.cli.consoles import plain_console
from stoker.cli.dev.local_server.display import Display
from stoker.cli.ending import explained
from stoker.cli.errors import CliError
from stoker.cli.jobs.display import JobDisplay
from stoker.cli.terminal import json_text, print_text, shown
from stoker.client import Event, JobRecord

ATTACKS = {
    "clears the screen": "\x1b[2J\x1b[H",
    "C1": "\x9b2J",
    "a link that lies": "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\",
    "the clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "a title that is typed": "\x1b]0;rm -rf ~\x07\x1b[21t",
    "overwritten": "evil\rgood\x08\x08",
    "DEL": "a\x7f",
}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def record(text: str) -> JobRecord:
    return JobRecord.read({"id": "j", "status": "IN_QUEUE", "reason": text})


def on_console(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)
    console.print(Text(text))
    table = Table(box=None)
    table.add_column(Text(text))
    table.add_row(text)
    console.print(table)
    display = Display(console, lambda: 0.0)
    display.line("caption", text)
    display.value("caption", "progress", text)
    job = JobDisplay(console)
    job.show_state(record(text))
    job.show_event(Event("chunk", "1-1", {"output": text}))
    job.show_event(Event("progress", "", text))
    consoles.print_table(console, ("a", "b"), [(text, "x"), (text, "y")], footer=(text, ""))


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("terminal", [False, True])
def test_no_text_on_a_console_is_a_command(attack: str, terminal: bool) -> None:
    console = plain_console(file=(file := io.StringIO()), width=1000)
    console._force_terminal, console.no_color = terminal, True
    on_console(console, attack)
    printed = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue())  # the console's own styles
    assert not CONTROL.search(printed)
    assert "\x1b" not in attack or "\\x1b" in printed


PRINTS: dict[str, Callable[[str], None]] = {
    "a result": print_text,
    "an error": lambda text: print_text(text, to_stderr=True),
    "a record": tables.print_json,
    "a list": lambda text: tables.show(("a",), [(text,)], [], as_json=False),
    "records": lambda text: tables.show(("a",), [], [text], as_json=True),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("how", PRINTS)
def test_no_text_on_the_streams_is_a_command(
    how: str, attack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    PRINTS[how](attack)
    printed = capsys.readouterr()
    assert not CONTROL.search(printed.out + printed.err)
    assert len(printed.out + printed.err) > len(attack)


def test_an_error_that_quotes_a_handler_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), explained(["job", "status"]):
        raise CliError("job j ended FAILED: \x1b[2J")
    assert capsys.readouterr().err == "stoker: job j ended FAILED: \\x1b[2J\n"


@given(value=st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_stays_the_same_value(value: object) -> None:
    for indent in (False, True):
        text = json_text(value, indent=indent)
        assert json.loads(text) == value
        assert shown(text) == text


@given(text=st.text())
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert shown(text) == text or CONTROL.search(text)
    assert not CONTROL.search(shown(text))


def test_all_that_commands_print_passes_the_one_place() -> None:
    """A console of another module, or a `print` of text that a command got, would pass it by."""
    folder = Path(tables.__file__).parent
    consoles = [path.name for path in folder.rglob("*.py") if re.search(r"\bConsole\(", path.read_text())]
    assert consoles == []
    printing = {
        path.name for path in folder.rglob("*.py") if re.search(r"^\s+print\(", path.read_text(), re.M)
    }
    assert printing <= PRINT_THEIR_OWN


PRINT_THEIR_OWN = {
    *("terminal.py", "starter.py", "main.py", "__main__.py", "options.py", "run.py", "watching.py"),
    *("key_commands.py", "timing.py", "schema_process.py"),
}
"""Modules whose `print` has no text of others; `schema_process` prints for control, no terminal."""
