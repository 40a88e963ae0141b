"""The lines that follow a job are for people: a preview does not flood the terminal."""

from __future__ import annotations

import base64

from stoker.cli.jobs.text import LONGEST_TEXT, happened, shortened
from stoker.client import Event


def test_a_long_text_is_cut_wherever_it_stands() -> None:
    data = base64.b64encode(bytes(9000)).decode()
    line = happened(Event("chunk", "1-0", {"output": {"preview": {"step": 1, "data": [data]}, "word": "to"}}))
    assert len(line) < 200
    assert line.startswith("chunk ")
    assert "(12000 characters)" in line
    assert '"word": "to"' in line


def test_what_is_short_stays() -> None:
    value = {"a": ["x" * LONGEST_TEXT, 1, None, True, {"b": 0.5}]}
    assert shortened(value) == value
