"""Control's image, as far as it can be read: what it installs, as whom it runs, and its command."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from tests.cli.every_command import COMMANDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile.control").read_text(encoding="utf-8")
STEPS = [
    (word, rest.strip())
    for word, rest in (
        line.split(" ", 1) for line in TEXT.replace("\\\n", " ").splitlines() if re.match(r"[A-Z]+ ", line)
    )
]
LAST = STEPS[max(n for n, (word, _) in enumerate(STEPS) if word == "FROM") :]


def of(word: str, steps: list[tuple[str, str]] = STEPS) -> list[str]:
    return [rest for step, rest in steps if step == word]


def test_the_base_is_slim_and_can_be_another() -> None:
    assert re.fullmatch(r"BASE=python:3\.\d+-slim-\w+", of("ARG")[0])
    assert of("FROM") == ["${BASE} AS build", "${BASE}"]


def test_what_it_installs_is_a_part_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert of("ARG")[1] == "EXTRAS=control"
    assert "control" in project["optional-dependencies"]
    assert "-c constraints.txt -r requirements.txt" in of("RUN")[1]


def test_what_it_needs_is_installed_before_the_source_is_copied() -> None:
    needs = next(n for n, (word, rest) in enumerate(STEPS) if word == "RUN" and "requirements.txt" in rest)
    copied = STEPS.index(("COPY", "pyproject.toml constraints.txt ./"))
    assert copied < needs < STEPS.index(("COPY", ". ."))


def test_it_runs_without_root_and_owns_its_data() -> None:
    user = of("USER", LAST)[0]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user), "a number: clusters refuse a name that may be root"
    (data,) = of("VOLUME", LAST)
    assert f"--from=build --chown={user} /made/stoker {data}" in of("COPY", LAST)
    assert f"STOKER_DATA_DIR={data}" in of("ENV", LAST)[0].split()
    assert not of("RUN", LAST), "nothing is installed that the build did not make"


def test_what_it_runs_is_a_command_of_ours_with_its_ports() -> None:
    program, command, *options = json.loads(of("ENTRYPOINT", LAST)[0])
    assert program == "stoker"
    COMMANDS[command].make_context(command, list(options))
    defaults = {one.name: one.default for one in COMMANDS[command].params}
    assert of("EXPOSE", LAST) == [f"{defaults['port']} {defaults['grpc_port']}"]
