"""The output while a job is watched, at a terminal and in a pipe."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from stoker.cli.jobs.display import JobDisplay
from stoker.client import Event, JobRecord

QUEUED = JobRecord("j", "IN_QUEUE", reason="no worker is ready [0 of 1] " + "z" * 100)


def displayed(*, terminal: bool) -> str:
    output = io.StringIO()
    console = Console(
        file=output, force_terminal=terminal, width=80, markup=False, emoji=False, highlight=False
    )
    with JobDisplay(console) as display:
        display.show_state(QUEUED)
        display.show_state(QUEUED)
        display.show_event(Event("progress", "", {"output": {"step": 1}}))
        display.show_event(Event("chunk", "1-0", {"output": "x" * 100}))
        display.print_output("the product")
    assert display.last_id == "1-0"
    return output.getvalue()


def test_in_a_pipe_each_change_is_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert displayed(terminal=False).splitlines() == [
        f"IN_QUEUE: {QUEUED.reason}",
        'progress {"step": 1}',
        f'chunk "{"x" * 100}"',
    ]
    assert capsys.readouterr().out == "the product\n"


def test_at_a_terminal_one_line_changes_and_chunks_stay_above_it(capsys: pytest.CaptureFixture[str]) -> None:
    output = displayed(terminal=True)
    assert "IN_QUEUE: no worker is ready [0 of 1]" in output
    assert output.count("z") >= 100, "what changes is not cut, either: a reason may end with an id"
    assert "…" not in output
    assert f'chunk "{"x" * 100}"\n' in output, "what stays is not"
    assert capsys.readouterr().out == "the product\n", "what is piped stays in its pipe"


def test_where_both_streams_are_one_terminal_the_product_stands_above_the_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "the product\n" in displayed(terminal=True)
    assert capsys.readouterr().out == ""
