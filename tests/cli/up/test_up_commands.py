"""`stoker up`: the arguments of control for TLS and proxies, and those of its agent."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from stoker.cli.consoles import lasting_console, plain_console
from stoker.cli.data_folder import DataFolder
from stoker.cli.main import main
from stoker.cli.up.up import AGENT, CONTROL, UpOptions, _Up, find_tokens


def made(tmp_path: Path, **overrides: object) -> _Up:
    folder = DataFolder.make(tmp_path / "data")
    options = UpOptions(folder.root, None, "0.0.0.0", 8000, 0, (), **overrides)  # type: ignore[arg-type]
    tokens = find_tokens(folder, {}, tmp_path)
    return _Up(options, folder, tokens, {}, {}, plain_console(file=io.StringIO()), 9)


def test_control_is_reported_how_to_serve_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_TLS_CERT", "cert.pem")
    monkeypatch.setenv("STOKER_BEHIND_PROXY", "1")
    up = made(tmp_path, tls_cert=Path("/c.pem"), tls_key=Path("/k.pem"))
    control = up._launch(CONTROL, {})
    at = control.argv.index("--grpc-plain")
    assert control.argv[at:] == ("--grpc-plain", "--tls-cert", "/c.pem", "--tls-key", "/k.pem")
    agent = up._launch(AGENT, {CONTROL: {"grpc": "127.0.0.1:7"}})
    for child in (control, agent):
        assert not [name for name in child.env if name.startswith(("STOKER_TLS_", "STOKER_BEHIND"))]
    assert not [word for word in agent.argv if "tls" in word]


def test_each_control_gets_the_same_listener_and_only_a_successor_waits(tmp_path: Path) -> None:
    up, facts = made(tmp_path), {CONTROL: {"http": "http://127.0.0.1:8000", "grpc": "127.0.0.1:7"}}
    first, agent, successor = (
        up._launch(CONTROL, {}),
        up._launch(AGENT, facts),
        up._launch(CONTROL, facts, True),
    )
    for control in (first, successor):
        assert control.argv[control.argv.index("--http-fd") + 1] == "9"
        assert control.fds == (9,)
    assert successor.argv[successor.argv.index("--grpc-port") + 1] == "7"
    assert (agent.fds, "--standby" in first.argv, "--standby" in successor.argv) == ((), False, True)


def test_a_proxy_in_front_is_reported_to_control(tmp_path: Path) -> None:
    assert "--behind-proxy" in made(tmp_path, behind_proxy=True)._launch(CONTROL, {}).argv
    assert "--behind-proxy" not in made(tmp_path / "plain")._launch(CONTROL, {}).argv


def test_the_agent_is_reported_where_volumes_lie(tmp_path: Path) -> None:
    facts = {CONTROL: {"grpc": "127.0.0.1:7"}}
    agent = made(tmp_path, volume_root=Path("/mnt/volumes"))._launch(AGENT, facts)
    assert agent.argv[agent.argv.index("--volume-root") + 1] == "/mnt/volumes"
    assert "--volume-root" not in made(tmp_path / "plain")._launch(AGENT, facts).argv


def test_reloading_needs_a_configuration_and_is_reported_to_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["up", "--reload", "--no-hosted"])
    assert "--reload watches stoker.toml and the handlers that it names" in capsys.readouterr().err
    assert "--reload" in made(tmp_path, reload=True)._launch(CONTROL, {}).argv
    assert "--reload" not in made(tmp_path / "plain")._launch(CONTROL, {}).argv


@pytest.mark.parametrize("command", ["up", "control"])
def test_a_wrong_setting_is_refused_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("STOKER_PIPELINE", "flux-9")
    with pytest.raises(SystemExit):
        main([command, "--hosted", "text-to-image", "--data-dir", str(tmp_path / "data")])
    assert "no pipeline 'flux-9'" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_up_takes_a_volume_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    taken: list[UpOptions] = []
    monkeypatch.setattr("stoker.cli.up.up.run", lambda options: taken.append(options) or 0)
    with pytest.raises(SystemExit):
        main(["up", "--volume-root", "/mnt/volumes", "--no-hosted"])
    assert taken[0].volume_root == Path("/mnt/volumes")


def test_users_for_workers_are_the_agents_to_give(tmp_path: Path) -> None:
    facts = {CONTROL: {"grpc": "127.0.0.1:7"}}
    agent = made(tmp_path, worker_users="auto")._launch(AGENT, facts)
    assert agent.argv[agent.argv.index("--worker-users") + 1] == "auto"
    assert "--worker-users" not in made(tmp_path / "plain")._launch(AGENT, facts).argv


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
