"""A job's input from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.cli.errors import CliError
from stoker.cli.jobs.input import read_input


def read(typed: str | None, *sets: str, stdin: bytes = b"") -> dict[str, Any]:
    return read_input(typed, sets, lambda: stdin)


def test_it_comes_from_the_argument_a_file_or_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"from": "file"}')
    assert read('{"from": "here"}') == {"from": "here"}
    assert read(f"@{file}") == {"from": "file"}
    assert read("-", stdin=b'{"from": "stdin"}') == {"from": "stdin"}
    assert read(None) == {}


def test_single_values_are_json_or_text_and_go_over_the_rest() -> None:
    assert read('{"a": 1, "b": 2}', "b=3", "c=true", "d=a=b", 'e={"f": []}', "g=", "h=NaN") == {
        "a": 1,
        "b": 3,
        "c": True,
        "d": "a=b",
        "e": {"f": []},
        "g": "",
        "h": "NaN",
    }


@pytest.mark.parametrize(
    ("typed", "sets", "message"),
    [
        ("hello", (), r"INPUT is not JSON .*; INPUT is a JSON object, @FILE, - for standard input"),
        ("[1]", (), r"INPUT must hold a JSON object; it holds \[1\]"),
        ('{"a": NaN}', (), "NaN is not a number in JSON"),
        ("@none.json", (), r"none\.json cannot be read: No such file or directory"),
        ("-", (), "standard input is not JSON"),
        (None, ("a",), "--set takes name=value; got 'a'"),
        (None, ("=a",), "--set takes name=value; got '=a'"),
    ],
)
def test_what_is_no_input_is_reported(typed: str | None, sets: tuple[str, ...], message: str) -> None:
    with pytest.raises(CliError, match=message):
        read(typed, *sets)


def test_bytes_that_are_no_text_are_reported() -> None:
    with pytest.raises(CliError, match="must be UTF-8 text; byte 1 is not"):
        read("-", stdin=b"{\xff")
