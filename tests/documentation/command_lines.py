"""Checks the command lines of a page: each must be one that the program on this tree would take.

`stoker …` is parsed by the command line itself; `make`, `python` and `curl` are compared with the Makefile,
the files and the OpenAPI documents. Programs that are not ours are only named (OTHERS).
"""

from __future__ import annotations

import io
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer
from rich.console import Console

from stoker.cli.dev.local_server.routing import local_routes
from stoker.cli.dev.project import load
from stoker.cli.dev.starter import write_project
from stoker.cli.main import app
from stoker.control.http.calls.app import make_app
from stoker.control.http.management.app import routes
from stoker.control.http.management.v2 import app as v2
from tests.cli.every_command import COMMANDS
from tests.control.http.calls.fake_plane import FakePlane
from tests.documentation.pages import Block

ROOT = Path(__file__).parents[2]
OTHERS = frozenset(
    {
        ".",
        "apt-get",
        "cd",
        "chgrp",
        "cp",
        "docker",
        "export",
        "helm",
        "install",
        "kubectl",
        "nvidia-ctk",
        "pip",
        "printf",
        "python3",
        "systemctl",
        "useradd",
    }
)
SEPARATORS = frozenset({"|", "&&", "||", ";", "&"})
ASSIGNMENT = re.compile(r"[A-Z_]+=.*")
FILES = re.compile(r"[\w./-]+\.(?:pem|toml|json|png|wav)")
FLAG = re.compile(r"--[a-z][a-z-]*")
TARGETS = frozenset(re.findall(r"^(\.?[a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
UsageError: Any = typer.BadParameter.__base__
PARAMETER = re.compile(r"\{\w+\}|[A-Z][A-Z_]+|ID")


def operations() -> dict[str, Mapping[str, set[str]]]:
    """Each path of all OpenAPI documents, parameters blanked: its methods with their query parameters."""
    jobs = make_app(FakePlane()).app.openapi()["paths"]
    managed = {f"/v1{path}": found for path, found in routes().openapi()["paths"].items()}
    second = {f"/v2{path}": found for path, found in v2.routes().openapi()["paths"].items()}
    known: dict[str, dict[str, set[str]]] = {}
    for path, methods in {**jobs, **managed, **second}.items():
        for method, operation in methods.items():
            query = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
            known.setdefault(PARAMETER.sub("{}", path), {})[method.upper()] = query
    for path in ("/docs", "/openapi.json", "/v1/docs", "/v1/openapi.json", "/v2/openapi.json", "/ping"):
        known[path] = {"GET": set()}
    return dict(known)


OPERATIONS = operations()


def dev_operations() -> dict[str, set[str]]:
    """The paths of the local server of a new project, parameters blanked, with their methods."""
    with tempfile.TemporaryDirectory() as folder:
        write_project(Path(folder), Console(file=io.StringIO()))
        found = local_routes(load(Path(folder)))[0]
    known: dict[str, set[str]] = {"/": {"GET"}}
    for one in found:
        known.setdefault(PARAMETER.sub("{}", one.path), set()).add(one.method)
    return known


DEV_OPERATIONS = dev_operations()
DEV_SERVER = "localhost:8888"


def lines(block: Block) -> Iterator[tuple[int, str]]:
    """Its command lines; what a backslash or an open quotation mark continues is one."""
    begun, line = "", block.line
    for number, text in enumerate(block.text.splitlines(), start=block.line):
        if not begun:
            line = number
        begun += text
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
        elif begun.count("'") % 2 == 0:
            yield line, begun
            begun = ""
        else:
            begun += "\n"


def commands(line: str) -> Iterator[list[str]]:
    """The commands that pipes and the like part, without comments, assignments and redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    for token in [*lexer, ";"]:
        if token not in SEPARATORS:
            command.append(token)
            continue
        while command and ASSIGNMENT.fullmatch(command[0]):
            command.pop(0)
        if command:
            yield command
        command = []


def fault(command: list[str], folder: Path) -> str | None:
    """What is wrong with one command, in words; `folder` is where the files that it names are made."""
    program = command[0]
    if program == "docker":
        command = inside_container(command)
        program = command[0] if command else "docker"
    if program == "stoker":
        return stoker_fault(command[1:], folder)
    if program == "make":
        wrong = [word for word in command[1:] if "=" not in word and word not in TARGETS]
        return f"the Makefile has no target {wrong[0]}" if wrong else None
    if program in ("python", "python3", ".venv/bin/python"):
        return python_fault(command[1:])
    if program == "curl":
        return curl_fault(command[1:])
    return None if program in OTHERS else f"no check knows the program {program}"


def inside_container(command: list[str]) -> list[str]:
    """What `docker exec` runs, and what follows our image's name; nothing for other uses of docker."""
    if "stoker" in command[1:]:
        return command[command.index("stoker") :]
    if command[1] == "run" and "stoker-agent" in command[4:]:
        at = len(command) - command[::-1].index("stoker-agent")
        return ["stoker", "agent", *command[at:]]
    return []


def stoker_fault(line_arguments: list[str], folder: Path) -> str | None:
    """Parsed by the command line: an unknown command or option, a wrong value and a missing argument."""
    name = next(
        (" ".join(line_arguments[:n]) for n in (2, 1) if " ".join(line_arguments[:n]) in COMMANDS), None
    )
    arguments = line_arguments[len(name.split()) :] if name else line_arguments
    if name is None:
        alone = len(line_arguments) == 1 and line_arguments[0].startswith("-")
        return (
            mention_fault(line_arguments)
            if alone
            else f"there is no command stoker {' '.join(line_arguments[:2])}"
        )
    for word in arguments:
        if FILES.fullmatch(word.removeprefix("@")):
            (folder / word.removeprefix("@")).touch()
    try:
        COMMANDS[name].make_context(name, [*arguments])
    except UsageError as wrong:
        return f"stoker {name}: {wrong.format_message()}"
    return None


def options(command: Any) -> set[str]:
    return {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)} | {"--help"}


def mention_fault(line_arguments: list[str]) -> str | None:
    """Of `stoker …` in running text: its command and each of its options are known; arguments may lack."""
    named = [word for word in line_arguments if not word.startswith("-")]
    name = next((" ".join(named[:n]) for n in (2, 1) if " ".join(named[:n]) in COMMANDS), None)
    groups = {one.split()[0] for one in COMMANDS}
    if name is None and named and (len(named) > 1 or named[0] not in groups):
        return f"there is no command stoker {' '.join(named[:2])}"
    command = COMMANDS[name] if name else typer.main.get_command(app)
    unknown = [
        word
        for word in line_arguments
        if word.startswith("--") and word.partition("=")[0] not in options(command)
    ]
    return f"stoker {name or ''} has no option {unknown[0]}" if unknown else None


def python_fault(line_arguments: list[str]) -> str | None:
    """The program is there, and knows each option."""
    program = next((word for word in line_arguments if word.endswith(".py")), None)
    if program is None:
        return None
    if not (ROOT / program).is_file():
        return f"there is no file {program}"
    source = (ROOT / program).read_text()
    for helper in re.findall(r"^    from (\w+) import main$", source, re.MULTILINE):
        source += (ROOT / program).with_name(f"{helper}.py").read_text()
    unknown = [word for word in line_arguments if FLAG.fullmatch(word) and f'"{word}"' not in source]
    return f"{program} has no option {unknown[0]}" if unknown else None


def curl_fault(line_arguments: list[str]) -> str | None:
    """The operation is in an OpenAPI document, with the query parameters that are given."""
    url = next((word for word in line_arguments if re.match(r"(https?://)?[\w.-]+(:\w+)?/", word)), None)
    if url is None:
        return "curl names no URL"
    sends = any(word in ("-d", "--data", "--data-binary", "-F") for word in line_arguments)
    method = (
        line_arguments[line_arguments.index("-X") + 1]
        if "-X" in line_arguments
        else "POST"
        if sends
        else "GET"
    )
    return operation_fault(method, url if "://" in url else f"http://{url}")


WORKERS_OWN = "/v2/chat-app/"
"""Below the load-balancing endpoint of the examples every path is its worker's."""


def operation_fault(method: str, url: str) -> str | None:
    """`url` may be a whole one, a path, or what comes after an endpoint's id. What is below `/openai/` is as
    deep as the caller likes, and in no OpenAPI document."""
    split = urlsplit(url)
    if split.netloc == DEV_SERVER:
        methods = next(
            (DEV_OPERATIONS[one] for one in candidates(split.path) if one in DEV_OPERATIONS), set()
        )
        return None if method in methods else f"a new project has no {method} {split.path}"
    if split.path.startswith("/openai/"):
        return None if method in ("GET", "POST") else f"{split.path} takes GET, POST, not {method}"
    if split.path.startswith(WORKERS_OWN):
        return None
    path = PARAMETER.sub("{}", split.path)
    known = next((OPERATIONS[one] for one in candidates(path) if one in OPERATIONS), None)
    if known is None:
        return f"no OpenAPI document has the path {split.path}"
    if method not in known:
        return f"{split.path} takes {', '.join(sorted(known))}, not {method}"
    unknown = {one.partition("=")[0] for one in split.query.split("&") if one} - known[method]
    return f"{method} {split.path} has no query parameter {min(unknown)}" if unknown else None


def candidates(path: str) -> Iterator[str]:
    """The path as it may stand in a document: endpoints and jobs have ids of their own in examples."""
    yield path
    yield f"/v2/{{}}{path}"
    parts = path.split("/")
    for at in range(2, len(parts)):
        yield "/".join([*parts[:at], "{}", *parts[at + 1 :]])
    if len(parts) == 5:
        yield "/".join([*parts[:2], "{}", parts[3], "{}"])
