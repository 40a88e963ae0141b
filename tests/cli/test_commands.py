"""The command line: what it says when something is wrong, and what each part may know."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.agent.host.devices.interfaces import DevicesUnknown
from stoker.cli import data_folder
from stoker.cli.agent import process as agent_process
from stoker.cli.agent.controls import NodeCredential
from stoker.cli.audit_log import local_user
from stoker.cli.control import process as control_process
from stoker.cli.control import standby
from stoker.cli.control.database import open_chosen
from stoker.cli.control.s3_settings import from_config, from_environment, take_secrets, to_environment
from stoker.cli.errors import CliError
from stoker.cli.main import main
from stoker.cli.terminal import NOISY
from stoker.control.config.config import load_config
from stoker.control.config.sections import Config
from stoker.control.rules.types import AuditLine
from stoker.control.store import list_audit
from stoker.outbound.s3.buckets import ObjectStoreConfig
from tests.certificates import make_certificate


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command sets the log up for its whole process, which here is everybody's."""
    loggers = [logging.getLogger(name) for name in (None, *NOISY)]
    levels, handlers = [logger.level for logger in loggers], list(logging.root.handlers)
    yield
    logging.root.handlers = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the surroundings: no stoker.toml, no .env, no variable."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("STOKER_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def a_store(in_a_folder: None) -> None:
    """The store of a control that was started here before."""
    open_chosen(data_folder.DataFolder.make(Path(".stoker")), Config(), {}, None, alone=True).close()


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return printed.err


def works(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 0


def test_a_key_is_shown_once_and_listed_without_its_secret(capsys: pytest.CaptureFixture[str]) -> None:
    works("key", "create", "--name", "laptop")
    token = capsys.readouterr().out.strip()
    assert token.startswith("sk_")
    _, key, secret = token.split("_")
    works("key", "list")
    listed = capsys.readouterr().out
    assert key in listed
    assert "laptop" in listed
    assert secret not in listed
    works("key", "revoke", key)
    capsys.readouterr()
    assert "no key" in fails(capsys, "key", "revoke", key)


def test_a_quota_is_set_and_shown_beside_the_store(capsys: pytest.CaptureFixture[str]) -> None:
    works("key", "create", "--jobs-waiting", "3", "--file-bytes", "9")
    key = capsys.readouterr().out.split("_")[1]
    works("key", "get", key)
    shown = capsys.readouterr().out
    assert "most jobsWaiting\t3" in shown
    assert "used jobsWaiting\t0" in shown
    assert "used fileBytes" not in shown, "only a running control knows"
    works("key", "quota", key, "--gpu-seconds-per-day", "60")
    assert capsys.readouterr().out == f"{key}: gpuSecondsPerDay 60\n"
    works("key", "get", key, "--json")
    got = json.loads(capsys.readouterr().out)
    assert (got["quota"], got["used"]) == ({"gpuSecondsPerDay": 60}, {"gpuSecondsToday": 0})
    works("key", "revoke", key)
    assert "no key" in fails(capsys, "key", "quota", key)


def test_the_highest_class_of_a_key_is_set_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    works("key", "create", "--priority", "low")
    key = capsys.readouterr().out.split("_")[1]
    works("key", "get", key)
    assert "highest priority\tlow" in capsys.readouterr().out
    for name, shown in (("urgent", "urgent"), ("normal", "normal"), ("default", "by its scope")):
        works("key", "set", key, "--priority", name)
        assert capsys.readouterr().out == f"{key}: highest priority {shown}\n"
    works("key", "get", key, "--json")
    assert json.loads(capsys.readouterr().out)["priority"] == "urgent"
    assert "a class is one of urgent, normal, low; got 'high'" in fails(
        capsys, "key", "set", key, "--priority", "high"
    )
    assert "no --read-only" in fails(capsys, "key", "create", "--join", "--priority", "low")
    works("key", "revoke", key)
    assert "no key" in fails(capsys, "key", "set", key, "--priority", "low")


def test_keys_in_a_pipe_are_lines_of_tabs_and_at_a_terminal_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    works("key", "create", "--name", "a laptop with a name that is long enough to fill a line by itself")
    key = capsys.readouterr().out.split("_")[1]
    works("key", "list")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split("\t")[:3] == [
        key,
        "a laptop with a name that is long enough to fill a line by itself",
        "default",
    ]
    assert len(line.split("\t")) == 8
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    works("key", "list")
    assert key in capsys.readouterr().out.split()


def test_a_key_is_revoked_by_the_beginning_of_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    ids = []
    for _ in range(2):
        works("key", "create")
        ids.append(capsys.readouterr().out.split("_")[1])
    assert "2 keys have ids that begin with" not in fails(capsys, "key", "revoke", "nothing")
    short = next(ids[0][:length] for length in range(1, 13) if not ids[1].startswith(ids[0][:length]))
    works("key", "revoke", short)
    assert capsys.readouterr().out == f"{ids[0]} is revoked\n"
    works("key", "list", "--json")
    assert [one["id"] for one in json.loads(capsys.readouterr().out)] == [ids[1]]


def audit_lines() -> list[AuditLine]:
    opened = open_chosen(data_folder.DataFolder.make(Path(".stoker")), Config(), {}, None, alone=False)
    try:
        return list(reversed(list_audit(opened.writer, "default", limit=100)))
    finally:
        opened.close()


def test_what_is_done_to_keys_is_in_the_audit_log(capsys: pytest.CaptureFixture[str]) -> None:
    works("key", "create", "--name", "laptop")
    key = capsys.readouterr().out.split("_")[1]
    works("key", "create", "--join")
    works("key", "list")
    works("key", "revoke", key[:-2])
    fails(capsys, "key", "revoke", key)
    works("key", "webhook-secret")
    found = audit_lines()
    assert [(line.method, line.path, line.status) for line in found] == [
        ("POST", "/v1/keys", 200),
        ("POST", "/v1/keys", 200),
        ("DELETE", f"/v1/keys/{key}", 204),
        ("DELETE", f"/v1/keys/{key}", 400),
        ("GET", "stoker key webhook-secret", 200),
    ]
    assert {line.key for line in found} == {local_user()}


def test_the_webhook_secret_is_rotated_in_two_steps(capsys: pytest.CaptureFixture[str]) -> None:
    works("key", "webhook-secret")
    old = capsys.readouterr().out
    assert "there is no old one to drop" in fails(capsys, "key", "webhook-secret", "--drop-old")
    works("key", "webhook-secret", "--rotate")
    printed = capsys.readouterr()
    assert printed.out.startswith("whsec_")
    assert printed.out != old
    assert "the one before, which --drop-old ends" in printed.err
    assert "signed with two secrets already" in fails(capsys, "key", "webhook-secret", "--rotate")
    assert "are two steps" in fails(capsys, "key", "webhook-secret", "--rotate", "--drop-old")
    works("key", "webhook-secret", "--drop-old")
    capsys.readouterr()
    works("key", "webhook-secret")
    assert capsys.readouterr().out == printed.out
    assert [(line.method, line.status) for line in audit_lines()] == [
        ("GET", 200),
        ("DELETE", 400),
        ("POST", 200),
        ("POST", 400),
        ("DELETE", 200),
        ("GET", 200),
    ]


def test_only_control_makes_a_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command in (("create",), ("list",), ("revoke", "abc"), ("webhook-secret",)):
        refused = fails(capsys, "key", *command, "--data-dir", "elsewhere")
        assert f"there is no store of a control in {tmp_path / 'elsewhere'}: start `stoker up`" in refused
        assert "STOKER_DATABASE_URL, or its address by STOKER_URL" in refused
    assert not Path("elsewhere").exists()


def test_a_command_uses_the_database_that_control_uses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_DATABASE_URL", "postgresql://u:hidden@db/stoker")
    refused = fails(capsys, "key", "create")
    assert ".stoker/stoker.db, and this command would use stoker at db:5432" in refused
    assert "hidden" not in refused
    monkeypatch.delenv("STOKER_DATABASE_URL")
    Path(".stoker/control.json").write_text('{"database": "stoker at db:5432"}')
    assert "uses the database stoker at db:5432, and this command would use" in fails(capsys, "key", "list")
    Path(".stoker/control.json").write_text("half a fi")
    assert "control.json cannot be read" in fails(capsys, "key", "list")
    Path(".stoker/control.json").unlink()
    works("key", "create")  # of a control of an earlier version
    Path(".stoker/secret.key").unlink()
    assert "the key file" in fails(capsys, "key", "create")
    assert not Path(".stoker/secret.key").exists()


def test_a_line_is_begun_before_the_key_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*args: object, **more: object) -> None:
        raise Killed

    monkeypatch.setattr("stoker.control.store.resources.keys.create_key", killed)
    with pytest.raises(Killed):
        main(["key", "create"])
    assert [(line.path, line.status) for line in audit_lines()] == [("/v1/keys", None)]


def test_a_token_that_control_takes_from_its_environment_is_in_the_audit_log_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        monkeypatch.setenv("STOKER_API_KEY", "sk_1_2")
        fails(capsys, *CONTROL, "--grpc-host", "0.0.0.0")  # after it has taken it
    assert [(line.path, line.status) for line in audit_lines()] == [("/v1/keys", 200)]


def test_keys_read_as_the_api_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    works("key", "create", "--name", "ci", "--read-only", "--json")
    made = json.loads(capsys.readouterr().out)
    assert made["key"].startswith(f"sk_{made['id']}_")
    works("key", "create", "--name", "old")
    works("key", "revoke", capsys.readouterr().out.split("_")[1])
    capsys.readouterr()
    works("key", "list", "--json")
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["id"], listed["access"]) == (made["id"], {"scope": "read"})
    assert "key" not in listed


def test_a_key_is_made_with_rights_and_an_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    works("key", "create", "--name", "ci", "--management", "read", "--endpoint", "*=read", "--expires", "24h")
    works("key", "create", "--name", "eye", "--read-only")
    works("key", "create", "--join", "--uses", "1")
    capsys.readouterr()
    works("key", "list")
    listed = capsys.readouterr().out
    assert "management=read *=read" in listed
    assert listed.splitlines()[-1].split("\t")[3] == "read"
    works("key", "list", "--join")
    assert capsys.readouterr().out.split("\t")[3] == "1"


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--uses", "1"], "--uses is for join tokens"),
        (["--join", "--read-only"], "a join token lets nodes join and nothing else"),
        (["--read-only", "--management", "read"], "--read-only cannot be combined"),
        (["--endpoint", "nope=read"], "there is no endpoint nope"),
        (["--cases"], "--cases is for endpoints that the key may read"),
        (["--read-only", "--cases"], "--read-only cannot be combined"),
        (["--endpoint", "echo"], "a right is one of none, read, write; got ''"),
        (["--management", "rw"], "a right is one of none, read, write; got 'rw'"),
        (["--expires", "tomorrow"], "--expires is a number and s, m, h or d"),
    ],
)
def test_what_makes_no_key_is_reported(
    capsys: pytest.CaptureFixture[str], options: list[str], printed: str
) -> None:
    assert printed in fails(capsys, "key", "create", *options)


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    works("key", "create", "--name", "[dev] :fire:")
    assert "[dev] :fire:" in capsys.readouterr().err
    works("key", "list")
    assert "[dev] :fire:" in capsys.readouterr().out


CONTROL = ("control", "--port", "0", "--grpc-port", "0")


@pytest.mark.parametrize(
    ("variable", "source", "message"),
    [
        (
            "STOKER_API_KEY",
            None,
            "STOKER_API_KEY was revoked, or has expired: remove it from the environment, or set another",
        ),
        (
            "STOKER_API_KEY",
            "/d/api_key",
            "the API key in /d/api_key was revoked, or has expired: remove the file, and",
        ),
        (
            "STOKER_API_KEY",
            "/h/.env",
            "STOKER_API_KEY in /h/.env was revoked, or has expired: remove the line, or",
        ),
        (
            "STOKER_JOIN_TOKEN",
            "/d/join_token",
            "the join token in /d/join_token was revoked, or has expired: remove the",
        ),
    ],
)
def test_a_revoked_token_is_named_by_where_it_came_from(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    source: str | None,
    message: str,
) -> None:
    works("key", "create", *(["--join"] if variable == "STOKER_JOIN_TOKEN" else []))
    token = capsys.readouterr().out.strip()
    works("key", "revoke", token.split("_")[1])
    monkeypatch.setenv(variable, token)
    if source is not None:
        monkeypatch.setenv(f"{variable}_SOURCE", source)
    assert message in fails(capsys, *CONTROL)


def test_a_token_is_listed_by_where_it_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_API_KEY", "sk_1_2")
    monkeypatch.setenv("STOKER_API_KEY_SOURCE", "/d/api_key")
    monkeypatch.setenv("STOKER_JOIN_TOKEN", "jt_2_2")
    assert "in the clear" in fails(capsys, *CONTROL, "--grpc-host", "0.0.0.0")  # after it has taken them
    works("key", "list")
    assert "file api_key" in capsys.readouterr().out
    works("key", "list", "--join")
    assert "environment" in capsys.readouterr().out


def test_an_agent_needs_a_join_token_until_it_has_joined(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise CliError("it goes on")

    monkeypatch.setattr(agent_process, "NvmlSampler", refuse)
    folder = Path("of-an-agent")
    agent = ("agent", "--control", "127.0.0.1:1", "--data-dir", str(folder))
    printed = fails(capsys, *agent)
    assert "an agent joins with a token: --join-token, or STOKER_JOIN_TOKEN in the environment" in printed
    assert not folder.exists()
    folder.mkdir(mode=0o700)
    assert NodeCredential(folder, None).keep("nk_1_2")
    assert "it goes on" in fails(capsys, *agent)


def test_unknown_devices_end_the_agent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_to_look() -> None:
        raise DevicesUnknown("the NVIDIA driver does not tell its devices: Unknown Error")

    monkeypatch.setattr(agent_process, "NvmlSampler", fails_to_look)
    printed = fails(capsys, "agent", "--control", "127.0.0.1:1", "--join-token", "jt_1_2")
    assert printed.endswith("stoker: the NVIDIA driver does not tell its devices: Unknown Error\n")


@pytest.mark.parametrize(
    ("lock", "command", "message"),
    [
        ("control.lock", CONTROL, "another control is running on"),
        (
            "agent/agent.lock",
            ("agent", "--control", "127.0.0.1:1", "--join-token", "j"),
            "another agent is running on",
        ),
    ],
)
def test_one_of_each_on_a_data_folder(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lock: str,
    command: tuple[str, ...],
    message: str,
) -> None:
    for module in (data_folder, standby):
        monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    with data_folder.locked(data_folder.DataFolder.make(Path(".stoker")).root / lock, "held already"):
        printed = fails(capsys, *command)
    assert f"stoker: {message}" in printed.splitlines()[-1]


def test_join_tokens_are_a_list_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    works("key", "create", "--join", "--name", "hosts")
    assert capsys.readouterr().out.startswith("jt_")
    works("key", "list")
    assert "hosts" not in capsys.readouterr().out
    works("key", "list", "--join")
    assert "hosts" in capsys.readouterr().out


def test_an_agent_without_a_token_names_the_option_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "STOKER_JOIN_TOKEN" in fails(capsys, "agent", "--control", "127.0.0.1:1")


def test_a_configuration_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no configuration file nowhere.toml" in fails(capsys, "control", "--config", "nowhere.toml")


def test_a_wrong_field_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("stoker.toml").write_text("local_root = []\n")
    assert "local_root is not a known field" in fails(capsys, "control", "--port", "0", "--grpc-port", "0")


def test_an_open_grpc_port_needs_tls(capsys: pytest.CaptureFixture[str]) -> None:
    printed = fails(capsys, "control", "--port", "0", "--grpc-port", "0", "--grpc-host", "0.0.0.0")
    assert "in the clear" in printed


def test_an_open_http_port_needs_tls_or_a_proxy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "keys to 0.0.0.0 in the clear" in fails(capsys, *CONTROL, "--host", "0.0.0.0")
    monkeypatch.setenv("STOKER_BEHIND_PROXY", "1")  # the next check follows then
    monkeypatch.setattr(control_process, "serve_http", _raises_how)
    assert "tls=None proxies=Proxies(" in fails(capsys, *CONTROL, "--host", "0.0.0.0")
    Path("stoker.toml").write_text("behind_proxy = true\n")
    assert "tls=None proxies=Proxies(" in fails(capsys, *CONTROL, "--host", "0.0.0.0")


def test_tls_of_the_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_certificate(Path())
    monkeypatch.setenv("STOKER_TLS_CERT", str(made.files.cert))
    monkeypatch.setenv("STOKER_TLS_KEY", str(made.files.key))
    monkeypatch.setattr(control_process, "serve_http", _raises_how)
    printed = fails(capsys, *CONTROL, "--host", "0.0.0.0")
    assert "tls=TlsFiles(cert=PosixPath('cert.pem')" in printed


async def _raises_how(*_: object, **how: object) -> None:
    raise CliError(" ".join(f"{name}={value}" for name, value in how.items()))


def test_an_agent_sends_nothing_in_the_clear(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    join = ("agent", "--control", "control.example.com:8001", "--join-token", "jt_1_2")
    printed = fails(capsys, *join)
    assert "to control.example.com:8001 in the clear: give --tls-ca" in printed
    assert not Path(".stoker/agent/node_id").exists()

    def refuse() -> None:
        raise CliError("it goes on")

    monkeypatch.setattr(agent_process, "NvmlSampler", refuse)
    assert "it goes on" in fails(capsys, *join, "--insecure")
    monkeypatch.setenv("STOKER_INSECURE", "1")
    assert "it goes on" in fails(capsys, *join)


def test_a_key_that_goes_out_in_the_clear_is_warned_of_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_API_KEY", "sk_1_2")
    monkeypatch.setenv("STOKER_URL", "http://0.0.0.0:1")
    printed = fails(capsys, "job", "status", "echo", "j-u1")
    assert printed.splitlines()[0] == (
        "stoker: warning: the API key goes to http://0.0.0.0:1 in the clear; give an https address"
    )
    assert printed.count("clear") == 1
    assert "clear" not in fails(capsys, "job", "status", "echo", "j-u1", "--url", "http://127.0.0.1:1")


def test_an_unknown_hosted_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    printed = fails(capsys, "control", "--port", "0", "--grpc-port", "0", "--hosted", "text-to-smell")
    assert "there is no hosted endpoint 'text-to-smell'; there are talking-video, text" in printed


def test_half_a_tls_pair(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cert.pem").write_text("")
    assert "--tls-key" in fails(
        capsys, "control", "--port", "0", "--grpc-port", "0", "--tls-cert", "cert.pem"
    )


def test_a_data_folder_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert "cannot be made" in fails(capsys, *CONTROL, "--data-dir", "file/data")
    assert "there is no store of a control" in fails(capsys, "key", "list", "--data-dir", "file/data")


def test_wrong_usage_is_status_two() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["control", "--port", "70000"])
    assert ended.value.code == 2


# ---- the object store's settings

STORE = ObjectStoreConfig("http://s3:1", "https://pub", "eu", "bucket", "id", "secret", folder="/objects")


def test_what_up_hands_to_control_arrives() -> None:
    assert from_environment(to_environment(STORE)) == STORE


def test_no_object_store_is_not_half_of_one() -> None:
    assert from_environment({}) is None
    with pytest.raises(CliError, match="STOKER_S3_ACCESS_SECRET"):
        from_environment({**to_environment(STORE), "STOKER_S3_ACCESS_SECRET": ""})


def test_the_configuration_names_one() -> None:
    Path("stoker.toml").write_text(
        '[s3]\nendpoint_url = "https://s3"\nbucket = "pictures"\naccess_id = "id"\naccess_secret = "secret"\n'
    )
    found = from_config(load_config("stoker.toml"))
    assert found == ObjectStoreConfig("https://s3", "", "", "pictures", "id", "secret")
    assert from_config(load_config(None)) is None


def test_our_variables_are_taken_out_of_the_environment() -> None:
    environ = {"STOKER_API_KEY": "sk", "PATH": "/bin", **to_environment(STORE)}
    taken = take_secrets(environ)
    assert environ == {"PATH": "/bin"}
    assert taken["STOKER_API_KEY"] == "sk"
