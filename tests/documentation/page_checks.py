"""Everything that a page says and a program can check. `faults` lists what does not hold, line by line."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker.client import Client
from stoker.client.management import Management
from stoker.control.config.config import ConfigError, load_config
from stoker.control.config.sections import (
    Config,
    Cors,
    EndpointSection,
    LimitsSection,
    Prices,
    RateLimits,
    RegistrySection,
    Retention,
    S3Section,
    Section,
    TlsSection,
)
from tests.cli.every_command import COMMANDS
from tests.documentation.command_lines import (
    ROOT,
    commands,
    fault,
    lines,
    mention_fault,
    operation_fault,
    options,
)
from tests.documentation.pages import SPAN, Block, Page

LANGUAGES = {"json", "python", "sh", "text", "toml"}
SOURCES = ("agent", "cli", "client", "control", "deploy", "models", "outbound", "testing", "wire", "worker")
TREE = re.compile(rf"(?:{'|'.join((*SOURCES, 'bench', 'docs', 'tests'))})/[\w./-]*")
VARIABLE = re.compile(r"\bSTOKER_[A-Z0-9_]*[A-Z0-9](?!\w)")
CALL = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/\S+)")
SECTIONS: dict[str, type[Section]] = {
    "stoker.toml": Config,
    "[[endpoints]]": EndpointSection,
    "limits": LimitsSection,
    "[[registries]]": RegistrySection,
    "[retention]": Retention,
    "[rate_limits]": RateLimits,
    "[prices]": Prices,
    "[cors]": Cors,
    "[tls]": TlsSection,
    "[s3]": S3Section,
}


def _variables() -> set[str]:
    found: set[str] = set()
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            found |= set(re.findall(r"STOKER_[A-Z0-9_]*", file.read_text(encoding="utf-8")))
    return found


VARIABLES = _variables()
PREFIXES = tuple(one for one in VARIABLES if one.endswith("_") and len(one) > len("STOKER_"))
"""Names of which a page may give the end: STOKER_S3_…, STOKER_SECRET_…"""


def faults(page: Page, folder: Path) -> list[str]:
    """`folder` is an empty one, in which the files that command lines name are made."""
    at, before = page.path.name, Path.cwd()
    os.chdir(folder)
    try:
        return [f"{at}:{line}: {problem}" for line, problem in sorted(_all(page, folder))]
    finally:
        os.chdir(before)


def _all(page: Page, folder: Path) -> Iterator[tuple[int, str]]:
    for block in page.blocks():
        yield from _block_faults(block, folder)
    for line, span in page.spans():
        for problem in _span_faults(span):
            yield line, problem
    for line, target in page.links():
        problem = _link_fault(page, target)
        if problem:
            yield line, problem
    for table in page.tables():
        yield from _table_faults(table)
    for number, text in enumerate(page.text.splitlines(), start=1):
        for name in VARIABLE.findall(text):
            if name not in VARIABLES and not name.startswith(PREFIXES):
                yield number, f"no program reads {name}"


def _block_faults(block: Block, folder: Path) -> Iterator[tuple[int, str]]:
    if block.language not in LANGUAGES:
        yield block.line, f"a block in {block.language or 'no language'} is not checked by anything"
    if block.language == "sh":
        for line, text in lines(block):
            for command in commands(text):
                problem = fault(command, folder)
                if problem:
                    yield line, problem
    if block.language == "python":
        yield from _python_faults(block)
    if block.language == "toml":
        problem = _toml_fault(block, folder)
        if problem:
            yield block.line, problem


def _python_faults(block: Block) -> Iterator[tuple[int, str]]:
    try:
        tree = ast.parse(block.text)
    except SyntaxError as wrong:
        yield block.line + (wrong.lineno or 1) - 1, f"it is not Python: {wrong.msg}"
        return
    for node in ast.walk(tree):
        problem = None
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            lacking = [one.name for one in node.names if not hasattr(module, one.name)]
            problem = f"{node.module} has no {lacking[0]}" if lacking else None
        elif isinstance(node, ast.Call):
            problem = _client_fault(node)
        if problem:
            yield block.line + node.lineno - 1, problem


def _client_fault(call: ast.Call) -> str | None:
    """Calls of the client, which pages name `stoker`: the method is there, and takes these arguments."""
    names: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not names or not isinstance(node, ast.Name) or node.id != "stoker":
        return None
    found: Any = Client
    for name in names:
        if name == "manage":
            found = Management(lambda call: call)
        elif not hasattr(found, name):
            return f"the client has no {'.'.join(names)}"
        else:
            found = getattr(found, name)
    keywords = {one.arg: one.value for one in call.keywords if one.arg}
    bound = ([Client] if "manage" not in names else []) + list(call.args)
    try:
        inspect.signature(found).bind(*bound, **keywords)
    except TypeError as wrong:
        return f"{'.'.join(names)}: {wrong}"
    return None


def _toml_fault(block: Block, folder: Path) -> str | None:
    """It is a `stoker.toml` that control takes, unless it says that it is another file; the handlers and
    folders that it names are made."""
    parsed = tomllib.loads(block.text)
    if block.title == "pyproject.toml":
        return None
    for root in parsed.get("local_roots", []):
        (folder / root).mkdir(exist_ok=True)
    (folder / "handlers").mkdir(exist_ok=True)
    for endpoint in parsed.get("endpoints", []):
        _make_local(folder, endpoint.get("imageName", ""))
    roots = "" if "local_roots" in parsed else 'local_roots = ["handlers"]\n'
    (folder / "stoker.toml").write_text(roots + block.text)
    try:
        load_config(folder / "stoker.toml")
    except ConfigError as wrong:
        return str(wrong)
    return None


def _make_local(folder: Path, image: str) -> None:
    if not image.startswith("local:"):
        return
    path = folder / image.removeprefix("local:").partition(":")[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".py":
        path.touch()
    else:
        path.mkdir(exist_ok=True)


def _span_faults(span: str) -> Iterator[str]:
    if span.startswith("stoker ") and not re.search(r"[…|<]|\.\.\.", span):
        problem = mention_fault(span.split()[1:])
        if problem:
            yield problem
    call = CALL.fullmatch(span)
    if call:
        problem = operation_fault(call[1], call[2].split("=")[0] if "&" not in call[2] else _blank(call[2]))
        if problem:
            yield problem
    if TREE.fullmatch(span) and not any((ROOT / f"{span}{end}").exists() for end in ("", ".py")):
        yield f"there is no {span} in the tree"


def _blank(path: str) -> str:
    return re.sub(r"=[^&]*", "=", path)


def _link_fault(page: Page, target: str) -> str | None:
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    file = page.path.parent / name if name else page.path
    if name and not file.exists():
        return f"the link {target} leads nowhere"
    if not anchor:
        return None
    other = page if not name else Page.read(file)
    return None if anchor in other.anchors() else f"{name or 'the page'} has no heading {anchor}"


def _table_faults(table: list[tuple[int, list[str]]]) -> Iterator[tuple[int, str]]:
    """Tables of settings name in their head whose they are: a section of stoker.toml, or a command."""
    (_, head), *rows = table
    of = head[0].strip("`")
    if of in SECTIONS:
        yield from _setting_faults(SECTIONS[of], table[0][0], rows)
    elif of.startswith("stoker ") and of.removeprefix("stoker ") not in COMMANDS:
        yield table[0][0], f"there is no command {of}"
    elif of.startswith("stoker "):
        yield from _option_faults(of, rows)


def _option_faults(of: str, rows: list[tuple[int, list[str]]]) -> Iterator[tuple[int, str]]:
    """Each row names an option of the command; a default that is a number is the true one."""
    command = COMMANDS[of.removeprefix("stoker ")]
    numbers = {
        flag: str(one.default)
        for one in command.params
        for flag in one.opts
        if isinstance(one.default, int | float) and not isinstance(one.default, bool)
    }
    for line, cells in rows:
        for name in SPAN.findall(cells[0]):
            if name not in options(command):
                yield line, f"{of} has no option {name}"
            elif cells[1] != numbers.get(name, cells[1]):
                yield line, f"the default of {name} is {numbers[name]}"


def _setting_faults(
    section: type[Section], line: int, rows: list[tuple[int, list[str]]]
) -> Iterator[tuple[int, str]]:
    """Each field is there once, with its default as TOML writes it."""
    rows_by_name = {cells[0].strip("`"): (at, cells[1].strip("`")) for at, cells in rows}
    for name, field in section.model_fields.items():
        if name not in rows_by_name:
            yield line, f"the field {name} is not told"
        else:
            default = _as_toml(field.get_default(call_default_factory=True), required=field.is_required())
            at, problem = rows_by_name.pop(name)
            if default is not None and problem != default:
                yield at, f"the default of {name} is {default}"
    for name, (at, _) in rows_by_name.items():
        yield at, f"there is no field {name}"


def _as_toml(value: object, *, required: bool) -> str | None:
    """None: a page may say it in its own words."""
    if required:
        return "required"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return "none" if value is None else None
