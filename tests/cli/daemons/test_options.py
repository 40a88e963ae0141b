"""The options of control and of the agent: as text in a process's arguments, and as the command line reads
them."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli import main as command_line
from stoker.cli.daemons import start
from stoker.cli.daemons.options import AgentOptions, ControlOptions, Options, arguments_of, options_of

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": TEXT,
    "int": st.integers(0, 65_535),
    "float": st.floats(0, 1e6),
    "bool": st.booleans(),
    "Path": TEXT.map(Path),
    "tuple[str, ...]": st.lists(TEXT).map(tuple),
}


def _options(kind: type[Options]) -> st.SearchStrategy[Options]:
    def values(of: str) -> st.SearchStrategy[Any]:
        plain = VALUES[of.removesuffix(" | None")]
        return st.none() | plain if of.endswith(" | None") else plain

    return st.builds(kind, **{field.name: values(str(field.type)) for field in fields(kind)})


@given(st.one_of(_options(ControlOptions), _options(AgentOptions)))
def test_options_arrive_as_they_were_given(options: Options) -> None:
    arguments = arguments_of(options)
    assert options_of(*arguments) == options
    assert all("\0" not in argument for argument in arguments)  # which no argument can have


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (
            ["control", "--port", "0", "--data-dir", "d", "--hosted", "a", "--hosted", "b", "--standby"],
            {"port": 0, "data_dir": Path("d"), "hosted": ("a", "b"), "standby": True, "grpc_port": 8001},
        ),
        (
            ["agent", "--control", "c:1", "--label", "a=b", "--grace", "2", "--log-level", "debug"],
            {"control": "c:1", "labels": ("a=b",), "grace_s": 2.0, "log_level": "debug", "join_token": None},
        ),
    ],
)
def test_the_command_becomes_a_process_of_its_options_with_its_environment(
    typed: list[str], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A token and a manager's socket in the environment stay there, and come into no argument."""
    ran: list[tuple[str, ...]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["stoker", *typed])
    monkeypatch.setattr(start.signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "execv", lambda program, arguments: ran.append((program, *arguments)))
    monkeypatch.setenv("STOKER_JOIN_TOKEN", "jt_1_2")
    monkeypatch.setenv("NOTIFY_SOCKET", "/socket")
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 0
    assert ran[0][:6] == (*[sys.executable] * 2, "-P", "-m", "stoker.cli.daemons", typed[0])
    options = options_of(*ran[0][5:])
    assert {name: getattr(options, name) for name in expected} == expected
    assert "jt_1_2" not in ran[0][6]
    assert (os.environ["STOKER_JOIN_TOKEN"], os.environ["NOTIFY_SOCKET"]) == ("jt_1_2", "/socket")
