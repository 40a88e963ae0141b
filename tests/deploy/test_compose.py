"""deploy/compose: docker-compose reads it, its commands are ours, and its small programs do what they say."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
import urllib.error
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from stoker.cli.control.agent_certificates import node_certificates
from stoker.cli.control.authority_files import AuthorityFiles
from stoker.cli.data_folder import DataFolder
from stoker.control.config.config import load_config
from stoker.control.config.tls import TlsFiles
from stoker.control.store import Conn, open_store
from stoker.control.store.database.commits import run_batch
from stoker.control.store.database.secrets import load_secrets
from stoker.control.store.resources import keys
from tests.cli.every_command import COMMANDS
from tests.documentation.page_checks import VARIABLES
from tests.load_module import load_module

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "compose"
SERVICES: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
OURS = {name: one for name, one in SERVICES.items() if one["image"].startswith("stoker-")}
CONTROLS = ("control-a", "control-b")
healthy = load_module("compose_healthy", FOLDER / "healthy.py")


def composer() -> list[str]:
    """Returns the command. Skips where there is none."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    plugin = shutil.which("docker") and subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False
    )
    if not plugin or plugin.returncode != 0:
        pytest.skip("docker-compose is not here; `apt-get install docker-compose` brings it")
    return ["docker", "compose"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The secrets that make_env.py writes."""
    shutil.copy(FOLDER / "make_env.py", tmp_path)
    subprocess.run([sys.executable, tmp_path / "make_env.py"], check=True, capture_output=True)
    path = tmp_path / ".env"
    assert path.stat().st_mode & 0o777 == 0o600
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


@pytest.mark.parametrize("files", [("compose.yaml",), ("compose.yaml", "gpu.yaml")], ids="+".join)
def test_compose_accepts_the_files(files: tuple[str, ...], env: dict[str, str]) -> None:
    options = [word for name in files for word in ("-f", str(FOLDER / name))]
    command = [*composer(), *options, "config", "--quiet"]
    ran = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    without = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert without.returncode != 0
    assert "run make_env.py" in without.stderr


def test_every_service_that_stays_has_a_health_check_and_is_started_again() -> None:
    for name, service in SERVICES.items():
        stays = name != "certificates"
        assert ("healthcheck" in service, service.get("restart") == "always") == (stays, stays), name
    conditions = {name: one["condition"] for name, one in SERVICES["control-a"]["depends_on"].items()}
    assert conditions == {
        "database": "service_healthy",
        "objects": "service_healthy",
        "certificates": "service_completed_successfully",
    }


def test_the_two_controls_differ_in_nothing_but_their_ports_and_volumes() -> None:
    one, other = ({**SERVICES[name]} for name in ("control-a", "control-b"))
    for service in (one, other):
        del service["ports"], service["volumes"]
    assert one == other
    assert "--standby" in one["command"]


@pytest.mark.parametrize("name", [name for name in OURS if "entrypoint" not in OURS[name]])
def test_the_commands_and_variables_are_ours(name: str, tmp_path: Path) -> None:
    service = SERVICES[name]
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    arguments = []
    for word in service["command"]:
        found = re.fullmatch(r"(/certificates|/var/lib/stoker/ca)/(.+)", str(word))
        if found is not None:
            assert any(one.split(":")[1] == found[1] for one in service["volumes"]), "its volume is there"
            (tmp_path / found[2]).touch()
        arguments.append(str(tmp_path / found[2]) if found else str(word))
    command = service["image"].removeprefix("stoker-")
    COMMANDS[command].make_context(command, arguments)
    s3 = {name for name in service["environment"] if name.startswith("STOKER_S3_")}
    assert {*service["environment"]} - s3 <= VARIABLES


def test_the_settings_are_accepted(tmp_path: Path) -> None:
    """With the sections that stand there as comments, too."""
    assert load_config(FOLDER / "stoker.toml").database is None
    text = (FOLDER / "stoker.toml").read_text().partition("# [oidc]")
    (tmp_path / "stoker.toml").write_text(text[0] + re.sub("(?m)^# ", "", text[1] + text[2]))
    assert load_config(tmp_path / "stoker.toml").oidc is not None


def adopted(conn: Conn, env: dict[str, str]) -> bool:
    """Whether control takes the key and the token at its start."""
    return keys.adopt(conn, "key", env["STOKER_API_KEY"], name="a", now=1.0) and keys.adopt(
        conn, "join", env["STOKER_JOIN_TOKEN"], name="b", now=1.0
    )


def test_the_secrets_are_accepted_and_written_once(env: dict[str, str], tmp_path: Path) -> None:
    assert len(base64.urlsafe_b64decode(env["STOKER_SECRET_KEY"])) == 32
    secrets = load_secrets(tmp_path, {"STOKER_SECRET_KEY": env["STOKER_SECRET_KEY"]})
    store = open_store(tmp_path / "stoker.db", secrets=secrets)
    try:
        assert run_batch(store.writer, [lambda conn: adopted(conn, env)]) == [(True, None)]
    finally:
        store.close()
    again = subprocess.run(
        [sys.executable, tmp_path / "make_env.py"], capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert "is there already" in again.stderr


def test_control_and_nodes_have_certificates_of_an_authority_that_is_made_once(tmp_path: Path) -> None:
    _, program, data, public, *names = SERVICES["certificates"]["entrypoint"]
    folders = {data: tmp_path / "data", public: tmp_path / "public"}
    for folder in folders.values():
        folder.mkdir()
    command = [sys.executable, FOLDER / Path(program).name, *folders.values(), *names]
    subprocess.run(command, check=True, capture_output=True)
    files = AuthorityFiles(folders[data] / "ca")
    tls = TlsFiles(files.server, files.server_key)
    nodes = node_certificates(load_config(FOLDER / "stoker.toml"), tls, files.key.parent)
    assert nodes is not None
    assert nodes.required
    (served, _) = tls.certificates()[0].certificates
    shown = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in shown] == ["localhost", "127.0.0.1", *CONTROLS]
    assert (folders[public] / "ca.pem").read_bytes() == nodes.authority.pem
    assert [path.name for path in folders[public].iterdir()] == ["ca.pem"]
    owner = re.search(r"^USER (\d+):", (ROOT / "Dockerfile.control").read_text(), re.MULTILINE)
    assert owner is not None
    for path in files.key.parent.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert os.geteuid() != 0 or path.stat().st_uid == int(owner[1])
    before = files.key.read_bytes(), files.server.read_bytes()
    subprocess.run(command, check=True, capture_output=True)
    assert files.key.read_bytes() == before[0]
    assert files.server.read_bytes() != before[1], "renewed at each start"


def test_no_agent_sees_the_key_of_the_authority() -> None:
    kept = {name for name, one in SERVICES.items() if any("authority:" in v for v in one.get("volumes", ()))}
    assert kept == {"certificates", *CONTROLS}
    mounted = {
        one.partition(":")[2] for name in CONTROLS for one in SERVICES[name]["volumes"] if "authority" in one
    }
    assert mounted == {f"{DataFolder(Path('/var/lib/stoker')).authority}:ro"}


@pytest.mark.parametrize(
    ("raised", "authority", "expected"),
    [
        (urllib.error.URLError(ConnectionRefusedError()), "cert.pem", 0),
        (urllib.error.URLError(ConnectionRefusedError()), None, 1),
        (urllib.error.URLError(TimeoutError()), "cert.pem", 1),
        (urllib.error.HTTPError("u", 503, "not ready", Message(), None), "cert.pem", 1),
    ],
)
def test_who_does_not_answer_is_well_only_as_a_standby_that_waits(
    raised: Exception, authority: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(healthy.urllib.request, "urlopen", opened)
    monkeypatch.setattr(healthy.ssl, "create_default_context", lambda cafile: None)
    assert healthy.main("https://127.0.0.1:8000/healthz", authority) == expected
