"""`stoker up`: the options of control for TLS and proxies, and those of its agent."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.consoles import lasting_console, plain_console
from stoker.cli.daemons.options import options_of
from stoker.cli.data_folder import DataFolder
from stoker.cli.main import main
from stoker.cli.up.children import AllFacts, Launch
from stoker.cli.up.up import AGENT, CONTROL, UpOptions, _Up, find_tokens

FACTS: AllFacts = {CONTROL: {"http": "http://127.0.0.1:8000", "grpc": "127.0.0.1:7"}}


def made(tmp_path: Path, **overrides: object) -> _Up:
    folder = DataFolder.make(tmp_path / "data")
    options = UpOptions(folder.root, None, "0.0.0.0", 8000, 0, (), **overrides)  # type: ignore[arg-type]
    tokens = find_tokens(folder, {}, tmp_path)
    return _Up(options, folder, tokens, {}, {}, plain_console(file=io.StringIO()), 9)


def launched(up: _Up, name: str, facts: AllFacts = FACTS, successor: bool = False) -> tuple[Any, Launch]:
    """The options that the child's process will read, and its launch."""
    launch = up._launch(name, facts, successor)
    assert launch.argv[:4] == (sys.executable, "-P", "-m", "stoker.cli.daemons")
    return options_of(*launch.argv[4:]), launch


def test_control_is_reported_how_to_serve_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_TLS_CERT", "cert.pem")
    monkeypatch.setenv("STOKER_BEHIND_PROXY", "1")
    up = made(tmp_path, tls_cert=Path("/c.pem"), tls_key=Path("/k.pem"))
    control, of_control = launched(up, CONTROL, {})
    assert (control.grpc_plain, control.tls_cert, control.tls_key) == (True, Path("/c.pem"), Path("/k.pem"))
    agent, of_agent = launched(up, AGENT)
    assert (agent.control, agent.tls_ca, agent.tls_cert, agent.join_token) == ("127.0.0.1:7", *[None] * 3)
    for child in (of_control, of_agent):
        assert not [name for name in child.env if name.startswith(("STOKER_TLS_", "STOKER_BEHIND"))]


def test_each_control_gets_the_same_listener_and_only_a_successor_waits(tmp_path: Path) -> None:
    up = made(tmp_path)
    first, successor = launched(up, CONTROL, {}), launched(up, CONTROL, FACTS, True)
    for options, launch in (first, successor):
        assert (options.http_fd, launch.fds) == (9, (9,))
    assert (first[0].grpc_port, successor[0].grpc_port) == (0, 7)
    assert (launched(up, AGENT)[1].fds, first[0].standby, successor[0].standby) == ((), False, True)


def test_no_secret_is_in_the_arguments_of_a_child(tmp_path: Path) -> None:
    up = made(tmp_path)
    for name in (CONTROL, AGENT):
        launch = launched(up, name)[1]
        assert up._tokens.join_token in launch.env.values()
        for token in (up._tokens.join_token, up._tokens.api_key):
            assert token not in " ".join(launch.argv)


@pytest.mark.parametrize("option", ["behind_proxy", "reload"])
def test_control_is_reported(tmp_path: Path, option: str) -> None:
    assert getattr(launched(made(tmp_path, **{option: True}), CONTROL)[0], option)
    assert not getattr(launched(made(tmp_path / "plain"), CONTROL)[0], option)


OF_THE_AGENT = {
    "volume_root": Path("/mnt/volumes"),
    "worker_user": "nobody",
    "worker_users": "auto",
    "probes": "127.0.0.1:9101",
    "reclaim_notices": "aws",
}


def test_the_agent_gets_what_is_the_agents_to_know(tmp_path: Path) -> None:
    agent = launched(made(tmp_path, **OF_THE_AGENT), AGENT)[0]
    assert {name: getattr(agent, name) for name in OF_THE_AGENT} == OF_THE_AGENT
    plain = launched(made(tmp_path / "plain"), AGENT)[0]
    assert [getattr(plain, name) for name in OF_THE_AGENT] == [None] * len(OF_THE_AGENT)


@pytest.mark.parametrize("name", [CONTROL, AGENT])
def test_both_log_as_up_was_told(tmp_path: Path, name: str) -> None:
    up = made(tmp_path, log_format="json", log_level="debug")
    options = launched(up, name)[0]
    assert (options.log_format, options.log_level) == ("json", "debug")


def test_reloading_needs_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["up", "--reload", "--no-hosted"])
    assert "--reload watches stoker.toml and the handlers that it names" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "control"])
def test_a_wrong_setting_is_refused_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("STOKER_PIPELINE", "flux-9")
    with pytest.raises(SystemExit):
        main([command, "--hosted", "text-to-image", "--data-dir", str(tmp_path / "data")])
    assert "no pipeline 'flux-9'" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_up_takes_the_options_of_its_agent_also_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_WORKER_USER", "nobody")
    monkeypatch.setenv("STOKER_PROBES", "127.0.0.1:9101")
    monkeypatch.setenv("STOKER_RECLAIM_NOTICES", "aws")
    monkeypatch.setenv("STOKER_LOG_FORMAT", "json")
    taken: list[UpOptions] = []
    monkeypatch.setattr("stoker.cli.up.up.run", lambda options: taken.append(options) or 0)
    with pytest.raises(SystemExit):
        main(["up", "--volume-root", "/mnt/volumes", "--worker-users", "auto", "--no-hosted"])
    assert {name: getattr(taken[0], name) for name in OF_THE_AGENT} == OF_THE_AGENT
    assert (taken[0].log_format, taken[0].log_level) == ("json", "info")


@pytest.mark.parametrize("warning", ["HANDLERS RUN AS ROOT: ...", ""])
def test_what_the_agent_warns_of_is_printed_at_the_terminal(tmp_path: Path, warning: str) -> None:
    up, printed = made(tmp_path), io.StringIO()
    up._console = plain_console(file=printed)
    up._all_ready(
        {CONTROL: {"http": "http://127.0.0.1:1", "grpc": "127.0.0.1:7"}, AGENT: {"warning": warning}}
    )
    assert ("stoker: warning: HANDLERS RUN AS ROOT" in printed.getvalue()) == bool(warning)


async def test_a_terminal_that_is_gone_holds_up_nothing(tmp_path: Path) -> None:
    up = made(tmp_path, page=True)
    output = io.StringIO()
    up._console = lasting_console(file=output)
    output.close()
    up._all_ready({CONTROL: {"http": "http://127.0.0.1:1", "grpc": "127.0.0.1:7"}, AGENT: {}})
    up._stop()
    assert up._page._begun.is_set()
