"""What was pasted with blanks, line breaks or marks at its ends reaches the commands without them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from stoker.cli.control import database
from stoker.cli.daemons.options import AgentOptions
from stoker.cli.data_folder import DataFolder
from stoker.cli.jobs import talk_job
from stoker.cli.jobs.input import read_input
from stoker.cli.main import main
from stoker.cli.manage import weights_commands
from stoker.cli.pasted import SENT_IN_HEADERS, clean_environment
from stoker.cli.up.up import find_tokens
from stoker.client import ClientError
from stoker.control.config.config import ConfigError, load_config
from stoker.control.config.sections import Config
from stoker.models.weights import read_lock

JOIN = "jt_00aa_" + "5e" * 32
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("STOKER_")]:
        monkeypatch.delenv(name)


def test_the_settings_of_all_commands_are_cleaned_and_nothing_else() -> None:
    environ = {
        "STOKER_API_KEY": " sk_1\n",
        "STOKER_S3_ENDPOINT_URL": "\ufeffhttps://s3.example.com\r\n",
        "STOKER_S3_ACCESS_SECRET": "aGVsbG8=\n",
        "STOKER_DATABASE_URL": "postgresql://me:pw@db/stoker\n",
        "HF_TOKEN": "hf_1\r\n",
        "HF_ENDPOINT": " https://hub.example.com ",
        "DOCKER_HOST": "tcp://engine:2375\n",
        "PS1": "$ ",
    }
    clean_environment(environ)
    assert environ == {
        "STOKER_API_KEY": "sk_1",
        "STOKER_S3_ENDPOINT_URL": "https://s3.example.com",
        "STOKER_S3_ACCESS_SECRET": "aGVsbG8=",
        "STOKER_DATABASE_URL": "postgresql://me:pw@db/stoker",
        "HF_TOKEN": "hf_1",
        "HF_ENDPOINT": "https://hub.example.com",
        "DOCKER_HOST": "tcp://engine:2375",
        "PS1": "$ ",
    }


@pytest.mark.parametrize("name", SENT_IN_HEADERS)
def test_a_key_that_was_pasted_in_two_lines_ends_every_command_and_is_not_shown(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv(name, "abcdefgh\nijklmnop")
    with pytest.raises(SystemExit) as ended:
        main(["job", "list", "echo"])
    printed = capsys.readouterr().err
    assert ended.value.code == 1
    assert printed.startswith(f"stoker: {name} has a line break at place 9 of 17")
    assert "abcdefgh" not in printed
    assert "ijklmnop" not in printed


def agent_options(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> AgentOptions:
    found: list[AgentOptions] = []
    monkeypatch.setattr("stoker.cli.agent.process.run", lambda options, _: found.append(options))
    monkeypatch.setattr("stoker.cli.daemons.start.end_with_parent", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        main(["agent", *arguments])
    assert ended.value.code == 0
    return found[0]


def test_control_and_join_token_of_an_agent(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    options = agent_options(monkeypatch, "--control", " control:8001\n", "--join-token", f" {JOIN}\r\n")
    assert (options.control, options.join_token) == ("control:8001", JOIN)
    monkeypatch.setenv("STOKER_JOIN_TOKEN", f"{JOIN}\n")
    assert agent_options(monkeypatch, "--control", "control:8001").join_token == JOIN
    with pytest.raises(SystemExit):
        main(["agent", "--control", "control:8001", "--join-token", f"{JOIN}\n{JOIN}"])
    printed = capsys.readouterr().err
    assert "the token on the command line has a line break at place" in printed
    assert JOIN not in printed


def test_addresses_on_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    found: list[Any] = []
    monkeypatch.setattr(talk_job, "run", lambda request, *_: found.append(request))
    with pytest.raises(SystemExit):
        main(["talk", " https://x/a.png\n", "https://x/a.wav ", "-o", "out.mp4", "--url", " https://there\n"])
    (request,) = found
    assert (request.image, request.audio) == ("https://x/a.png", "https://x/a.wav")
    assert request.url == "https://there"
    monkeypatch.setattr(weights_commands, "fetch_all", lambda *given: found.append(given[2]))
    with pytest.raises(SystemExit):
        main(["weights", "fetch", "--mirror", " s3://models/mirror\n"])
    assert found[-1] == "s3://models/mirror"
    with pytest.raises(SystemExit):
        main(["job", "list", "echo", "--url", "http://me:hunter2@there"])
    assert "hunter2" not in capsys.readouterr().err


def test_the_key_of_up_may_stand_in_any_env_file(tmp_path: Path) -> None:
    folder = DataFolder.make(tmp_path / "data")
    (tmp_path / ".env").write_bytes('STOKER_API_KEY="sk_1 "  # mine\r\n'.encode("utf-16"))
    assert find_tokens(folder, {}, tmp_path).api_key == "sk_1"
    (tmp_path / ".env").write_text('STOKER_API_KEY="sk_1\nsk_2"')
    with pytest.raises(ClientError, match="STOKER_API_KEY has a line break at place 5 of 9"):
        find_tokens(folder, {}, tmp_path)


@pytest.mark.parametrize("source", ["option", "variable", "configuration"])
def test_the_url_of_a_database(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(database, "open_store", lambda where, **_: opened.append(where))
    folder, url = DataFolder.make(tmp_path / "data"), " postgresql://me:pw@db/stoker\n"
    config = Config(database=SecretStr(url) if source == "configuration" else None)
    variables = {"STOKER_DATABASE_URL": url} if source == "variable" else {}
    option = url if source == "option" else None
    database.open_chosen(folder, config, variables, option, alone=False)
    database.open_chosen(folder, Config(), {"STOKER_DATABASE_URL": " "}, "\n", alone=False)
    assert opened == ["postgresql://me:pw@db/stoker", folder.store]


def test_the_keys_of_the_configuration_and_its_mark(tmp_path: Path) -> None:
    file = tmp_path / "stoker.toml"
    lines = (
        '[s3]\nendpoint_url = " https://s3.example.com\\n"\nbucket = "models "\naccess_id = "AKIA\\n"\n'
        'access_secret = """\naGVsbG8=\n"""\n[[registries]]\nid = "ours"\n'
        'username = "me "\npassword = "pw\\n"\n'
    )
    file.write_bytes(lines.encode("utf-8-sig"))
    config = load_config(file)
    assert config.s3 is not None
    assert (config.s3.endpoint_url, config.s3.bucket) == ("https://s3.example.com", "models")
    assert (config.s3.access_id, config.s3.access_secret.get_secret_value()) == ("AKIA", "aGVsbG8=")
    (registry,) = config.registries
    assert (registry.username, registry.password.get_secret_value()) == ("me", "pw")
    file.write_bytes(lines.encode("utf-16"))
    with pytest.raises(ConfigError, match=r"stoker\.toml is not UTF-8"):
        load_config(file)
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match=r"stoker\.toml cannot be read: Is a directory"):
        load_config(file)


def test_other_files_of_editors_that_write_a_mark(tmp_path: Path) -> None:
    (tmp_path / "input.json").write_bytes('{"text": "hi"}'.encode("utf-8-sig"))
    assert read_input(f"@{tmp_path / 'input.json'}", (), lambda: b"") == {"text": "hi"}
    assert read_input("-", (), lambda: '{"text": "hi"}'.encode("utf-8-sig")) == {"text": "hi"}
    (tmp_path / "ours.lock").write_bytes("version = 1\n".encode("utf-8-sig"))
    assert read_lock(tmp_path / "ours.lock").entries == ()
