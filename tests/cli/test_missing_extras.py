"""Every command in installs that have only some extras: what is missing is a sentence with the pip command.

Each install is a real environment; all commands are called in one process of it, and those that a missing
extra does not stop meet a service that is not there.
"""

from __future__ import annotations

import json
import os
import subprocess
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.expected_errors import EXPECTED, is_expected
from stoker.cli.extras import how_to_install
from tests.cli.every_command import COMMANDS
from tests.cli.partial_installs import make

STARTS_NOTHING = {
    "up": ["up", "--config", "nowhere.toml"],
    "control": ["control", "--tls-cert", "cert.pem"],
    "agent": ["agent", "--control", "127.0.0.1:9", "--join-token", "jt_1_2", "--label", "novalue"],
}
"""In an install that has all that they need, these end with a sentence before they start anything."""

EACH_COMMAND = f"""
import contextlib, functools, io, json, shlex, ssl, sys, time, traceback

import typer

time.sleep = lambda seconds: None  # before a second try
ssl.create_default_context = functools.cache(ssl.create_default_context)  # what would take a tenth of a
typer.main.get_command = functools.cache(typer.main.get_command)  # second for each command
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.cli.every_command import EXAMPLES

from stoker.cli import main

errors = {{}}
for words, lines in EXAMPLES.items():
    arguments = {STARTS_NOTHING!r}.get(words) or shlex.split(lines[0])[1:]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main.main(arguments)
            code = None
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc(file=err)
            code = "a traceback"
    errors[words] = [code, err.getvalue()]
print(json.dumps(errors))
"""


def run(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environ |= {
        "STOKER_URL": "http://127.0.0.1:9",
        "STOKER_API_KEY": "sk_1_2",
        "COLUMNS": "200",
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }
    for name in ("face.png", "voice.wav", "ca.pem", "cert.pem", "key.pem"):
        (folder / name).touch()
    return subprocess.run(
        [python, "-P", *arguments],
        cwd=folder,
        env=environ,
        input="a value\n",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def refused(reported: dict[str, Any]) -> dict[str, set[str]]:
    """The commands that name extras to install, by which."""
    found: dict[str, set[str]] = {}
    for names, (code, output) in reported.items():
        assert code in (0, 1, 2), f"{names}: {code}: {output}"
        assert "Traceback" not in output
        if "pip install" in output:
            assert output.startswith("stoker: "), output
            assert "-m pip install -e '/src/of/stoker[" in output
            found.setdefault(output.split("/src/of/stoker[")[1].split("]")[0], set()).add(names)
    return found


CONTROL = {"control", "dev", "run"}
KEYS = {name for name in COMMANDS if name.startswith(("key ", "database ", "backup", "restore"))}


@pytest.mark.parametrize(
    ("extras", "expected"),
    [
        ((), {"control,agent": {"up"}, "control": {*CONTROL, *KEYS}, "agent": {"agent"}}),
        (("agent",), {"control,agent": {"up"}, "control": {*CONTROL, *KEYS}}),
        (("control",), {"control,agent": {"up"}, "agent": {"agent"}}),
        (("control", "agent"), {"models": {"up"}}),
    ],
    ids=",".join,
)
@pytest.mark.slow
def test_each_missing_extra_is_a_message(
    tmp_path: Path, extras: tuple[str, ...], expected: dict[str, set[str]]
) -> None:
    python = make(tmp_path / "install", extras)
    ended = run(python, tmp_path, "-c", EACH_COMMAND)
    assert ended.returncode == 0, ended.stderr
    found = refused(json.loads(ended.stdout))
    models = found.pop("models", set())
    assert found == {name: names for name, names in expected.items() if name != "models"} | {"page": {"page"}}
    assert {name for name in models if not name.startswith("model ")} <= {
        *expected.get("models", ()),
        "weights fetch",
    }


def test_a_lock_is_filled_on_controls_host_without_torch(tmp_path: Path) -> None:
    python = make(tmp_path / "install", ("control",))
    assert run(python, tmp_path, "-c", "import torch").returncode == 1
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_bytes(b"{}")
    of_folder = ["weights", "lock", "ours", "--from", str(weights), "--lock", "our.lock"]
    filled = run(python, tmp_path, "-m", "stoker.cli", *of_folder)
    assert (filled.returncode, filled.stderr) == (0, ""), filled.stderr
    assert "config.json" in (tmp_path / "our.lock").read_text(encoding="utf-8")
    of_hub = ["weights", "lock", "flux-1-schnell", "--lock", "our.lock"]
    asked = run(python, tmp_path, "-m", "stoker.cli", *of_hub)
    assert asked.stderr.startswith("stoker: "), asked.stderr
    assert "pip install" not in asked.stderr


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["up"], "control,agent"),
        (["job", "list", "caption"], ""),
        (["weights", "verify"], "models"),
        (["--version"], ""),
    ],
)
def test_without_the_command_lines_libraries(tmp_path: Path, command: list[str], wanted: str) -> None:
    ended = run(make(tmp_path / "install", (), base=False), tmp_path, "-m", "stoker.cli", *command)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1, ended.stderr
    extras = f"'/src/of/stoker[{wanted}]'" if wanted else "/src/of/stoker"
    assert f"install -e {extras}" in ended.stderr


def test_a_gpu_host_fetches_weights_without_a_control_plane(tmp_path: Path) -> None:
    python = make(tmp_path / "install", ("agent", "models"))
    (tmp_path / "mirror").mkdir()
    fetched = run(
        python, tmp_path, "-m", "stoker.cli", "weights", "fetch", "flux-1-schnell", "--mirror", "mirror"
    )
    assert "pip install" not in fetched.stderr
    assert fetched.stderr.startswith("stoker: cannot fetch flux-1-schnell"), fetched.stderr


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        (None, "'stoker[agent]'"),
        ({"url": "file:///a/b", "dir_info": {}}, "'/a/b[agent]'"),
        (
            {"url": "https://git/stoker", "vcs_info": {"vcs": "git", "commit_id": "58f5ecd"}},
            "'stoker[agent] @ git+https://git/stoker@58f5ecd'",
        ),
        ({"url": "https://x/stoker.whl", "archive_info": {}}, "'stoker[agent] @ https://x/stoker.whl'"),
    ],
)
def test_it_is_installed_from_where_it_came(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, wanted: str
) -> None:
    class Here:
        def read_text(self, name: str) -> str | None:
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(metadata, "distribution", lambda name: Here())
    assert how_to_install(("agent",)).endswith(f" -m pip install {wanted}")


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_errors_that_are_messages_are_there(name: str) -> None:
    module, _, kind = name.rpartition(".")
    error = getattr(import_module(module), kind)
    assert is_expected(error.__new__(error))
    assert not is_expected(ValueError())
