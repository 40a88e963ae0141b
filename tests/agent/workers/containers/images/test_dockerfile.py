"""The agent's image, as far as it can be read: its base, what it copies and installs, and what it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from typer.testing import CliRunner

from stoker.cli.main import app

ROOT = Path(__file__).parents[5]
TEXT = (ROOT / "Dockerfile.cuda").read_text(encoding="utf-8")
STEPS = [line.split(" ", 1) for line in TEXT.replace("\\\n", " ").splitlines() if re.match(r"[A-Z]+ ", line)]


def of(word: str) -> list[str]:
    return [rest.strip() for step, rest in STEPS if step == word]


def test_the_base_can_be_another() -> None:
    assert [word for word, _ in STEPS[:2]] == ["ARG", "FROM"]
    name, _, image = of("ARG")[0].partition("=")
    assert of("FROM")[0] == f"${{{name}}} AS python"
    assert re.fullmatch(r"nvidia/cuda:[\w.]+-base-\w+\.?\w*", image), "pinned, and without what only compiles"


def test_what_it_installs_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    arguments = dict(arg.split("=", 1) for arg in of("ARG")[1:])
    assert set(arguments["EXTRAS"].split(",")) == {"agent", "models", "gpu"}
    assert {"agent", "models", "gpu"} < set(project["optional-dependencies"])
    requirements, installs = of("RUN")[-2:]
    assert "-c constraints.txt -r requirements.txt" in requirements
    assert installs.endswith("--no-deps --no-build-isolation .")
    pinned = {line.split("==")[0] for line in constraints()}
    assert {need.split(">")[0] for need in project["optional-dependencies"]["gpu"]} <= pinned


def test_what_it_needs_is_installed_before_the_source_is_copied() -> None:
    """A changed line of the source downloads nothing again."""
    words = [(step, rest.strip()) for step, rest in STEPS]
    needs = next(n for n, (step, rest) in enumerate(words) if step == "RUN" and "requirements.txt" in rest)
    source = words.index(("COPY", ". ."))
    assert words.index(("COPY", "pyproject.toml constraints.txt ./")) < needs < source


def test_what_it_compiles_with_is_there() -> None:
    """Triton builds a C program with Python's headers for each kernel's launcher."""
    (packages,) = re.findall(r"--no-install-recommends ([\w\- ]+?)\s+&&", of("RUN")[0])
    assert {"gcc", "libc6-dev", "python3-dev", "tini"} <= set(packages.split())


def constraints() -> list[str]:
    return (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def test_torch_is_pinned_as_it_is_tested_and_can_be_another() -> None:
    arguments = dict(arg.split("=", 1) for arg in of("ARG")[1:])
    assert f"torch=={arguments['TORCH']}" in constraints()
    requirements = of("RUN")[-2]
    (changed,) = re.findall(r'sed -i "s/(.*)/(.*)/" constraints.txt', requirements)
    assert [bool(re.fullmatch(changed[0], line)) for line in constraints()].count(True) == 1
    assert changed[1] == "torch==${TORCH}"
    assert "--extra-index-url ${TORCH_INDEX}" in requirements


def test_its_command_imports_nothing_of_what_only_control_needs() -> None:
    """Before it looks at anything: no host with an agent alone has these packages."""
    code = (
        "import sys, stoker.cli.main\n"
        "stoker.cli.daemons.start.prepare('text', 'info')\n"
        "import stoker.cli.agent.process\n"
        "numbers = 'stoker.control', 'stoker.control.rules', 'stoker.control.rules.limits'\n"
        "print([n for n in sys.modules if n.startswith('stoker.control') and n not in numbers"
        " or n in ('orjson', 'fastapi', 'sqlalchemy', 'cryptography', 'jsonschema')])"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_only_what_is_named_is_sent_to_the_engine() -> None:
    """Whatever else lies in a checkout may be a key."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    assert rules[0] == "*"
    named = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parts = {
        os.readlink(path).split("/")[2] for path in (ROOT / "src" / "stoker").iterdir() if path.is_symlink()
    }
    files = {"pyproject.toml", "constraints.txt", "src", project["readme"], *project["license-files"]}
    made_here = {
        "models/talking_video/safety_tiny/model.safetensors",
        "models/talking_video/portrait/trained/*.safetensors",
        "models/text_to_image/mini/trained/*.safetensors",
    }
    assert all([*ROOT.glob(name)] for name in made_here)
    assert named == parts | files | made_here


def test_what_it_runs_is_a_command_of_ours() -> None:
    *init, program, command = (given := json.loads(of("ENTRYPOINT")[0]))[:5]
    options = given[5:]
    assert init == ["tini", "-s", "--"], "what descendants leave is reaped, also in the host's pid namespace"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert program in project["scripts"]
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    flags, folders = options[::2], options[1::2]
    assert flags == ["--data-dir"]
    assert all(flag in result.output for flag in flags)
    assert folders == of("VOLUME"), "what it keeps outlives the container"
    assert f"STOKER_WEIGHTS_DIR={folders[0]}/weights" in of("ENV")[0].split(), "weights, too"
