"""The systemd units of deploy/systemd: systemd itself accepts them, and they say what a daemon needs."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.cli.data_folder import DataFolder
from tests.cli.every_command import COMMANDS

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
PROGRAM = "/opt/stoker/bin/stoker"
MOST_EXPOSED = {"stoker-control": 2.0, "stoker-control-spare": 2.0, "stoker-page": 2.0}
"""By systemd's own measure, from 0 to 10; the agent's workers are confined by the agent."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here; `apt-get install systemd`"
)


ADDED_UP = re.compile(r"^LoadCredential=.*\n", re.MULTILINE)
"""What systemd takes several times. Of another setting it takes the last one, without a word."""


def parsed(unit: Path) -> dict[str, dict[str, str]]:
    """Raises DuplicateOptionError for a setting that is given twice."""
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(ADDED_UP.sub("", unit.read_text(encoding="utf-8")), source=unit.name)
    return {name: dict(parser[name]) for name in parser.sections()}


@pytest.mark.parametrize("unit", [*UNITS, *FOLDER.glob("*.socket")], ids=lambda unit: unit.name)
def test_no_setting_is_given_twice(unit: Path, tmp_path: Path) -> None:
    assert parsed(unit)
    twice = tmp_path / unit.name
    lines = unit.read_text(encoding="utf-8").splitlines()
    setting = next(n for n, line in enumerate(lines) if line.startswith("Description="))
    twice.write_text("\n".join([*lines[: setting + 1], lines[setting], *lines[setting + 1 :]]))
    with pytest.raises(configparser.DuplicateOptionError, match="Description"):
        parsed(twice)


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    """With the program that is here: systemd looks whether it can be executed."""
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace(PROGRAM, sys.executable))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", here], capture_output=True, text=True, check=False
    )
    said = [line for line in ran.stderr.splitlines() if unit.stem in line]
    assert (ran.returncode, said) == (0, []), ran.stderr


@needs_systemd
@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_a_unit_without_root_is_confined(name: str, tmp_path: Path) -> None:
    shutil.copy(FOLDER / f"{name}.service", tmp_path)
    ran = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", tmp_path / f"{name}.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unrecognized option" in ran.stderr:
        pytest.skip("this systemd measures units that run alone: --offline came with version 250")
    found = re.search(r"exposure level for \S+: ([\d.]+)", ran.stdout)
    assert found is not None, ran.stdout + ran.stderr
    assert float(found[1]) <= MOST_EXPOSED[name], ran.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_is_there_and_starts_it_again(unit: Path) -> None:
    service = parsed(unit)["Service"]
    program, command, *options = shlex.split(service["ExecStart"])
    name = unit.stem.removesuffix("-spare")
    assert (program, f"stoker-{command}", options.pop()) == (PROGRAM, name, "$OPTIONS")
    COMMANDS[command].make_context(command, [*options, *(["--control", "c:1"] if command == "agent" else [])])
    assert service["Type"] == "notify"
    assert service["Restart"] == "always"
    assert parsed(unit)["Unit"]["StartLimitIntervalSec"] == "0", "otherwise it gives up after five starts"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


WORDS = re.compile(r"--[a-z-]+(?: (?!--)[^\s,;]+)?")
EXAMPLES = {
    "stoker-control": ["--host", "--grpc-host", "--standby"],
    "stoker-control-spare": ["--standby"],
    "stoker-agent": ["--control", "--tls-ca", "--ca-fingerprint"],
    "stoker-page": ["--url", "--host", "--tls-cert", "--tls-key", "--oidc-issuer", "--oidc-client-id"],
}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_options_that_the_head_of_a_unit_names_are_there(unit: Path, tmp_path: Path) -> None:
    head = unit.read_text(encoding="utf-8").partition("[Unit]")[0]
    named = {word.split()[0]: word.rstrip(".") for word in WORDS.findall(head) if word != "--grace"}
    assert set(EXAMPLES[unit.stem]) <= set(named)
    command = unit.stem.removeprefix("stoker-").removesuffix("-spare")
    (tmp_path / "file").touch()
    words = [re.sub(r" /.*", f" {tmp_path / 'file'}", word) for word in named.values()]
    needed = ["--control", "c:1"] if command == "agent" else []
    COMMANDS[command].make_context(command, [*needed, *" ".join(words).split()])


def test_the_authority_of_nodes_lies_in_the_folder_that_systemd_gives_control() -> None:
    service = parsed(FOLDER / "stoker-control.service")["Service"]
    data = dict(one.split("=") for one in service["Environment"].split())["STOKER_DATA_DIR"]
    assert data == f"/var/lib/{service['StateDirectory']}"
    head = (FOLDER / "stoker-control.service").read_text(encoding="utf-8")
    assert f"in {DataFolder(Path(data)).authority}," in head


def test_a_second_control_differs_in_its_name_and_has_the_first_ones_listener() -> None:
    first, second = (parsed(FOLDER / f"stoker-control{name}.service") for name in ("", "-spare"))
    listener = parsed(FOLDER / "stoker-control.socket")
    assert second["Service"].pop("Sockets") == "stoker-control.socket", "the first one has it by its name"
    first["Unit"].pop("Description")
    second["Unit"].pop("Description")
    assert first == second
    assert [name for name in listener["Socket"] if name.startswith("Listen")] == ["ListenStream"]
    assert "Accept" not in listener["Socket"], "control accepts by itself"


def test_workers_end_by_their_agent_and_have_cgroups_below_its_own() -> None:
    service = parsed(FOLDER / "stoker-agent.service")["Service"]
    assert (service["KillMode"], service["Delegate"], service["OOMPolicy"]) == ("mixed", "yes", "continue")
    grace_s = next(one.default for one in COMMANDS["agent"].params if one.name == "grace")
    assert int(service["TimeoutStopSec"]) > grace_s + 30


def test_the_page_is_handed_its_certificate_and_its_key() -> None:
    """Its user, who is made at each start, may read neither. Named without a path, they may be missing."""
    unit = FOLDER / "stoker-page.service"
    handed = re.findall(r"^LoadCredential=(\S+)$", unit.read_text(), re.MULTILINE)
    assert handed == ["stoker-page.cert", "stoker-page.key"]
    named = re.findall(r"--tls-\w+ /run/credentials/stoker-page\.service/(\S+?)\.?\s", unit.read_text())
    assert named == handed
