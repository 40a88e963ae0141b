"""What commands that manage resources do: ask the API, and print what it answered.

A list is a table on a terminal and tab-separated lines elsewhere; one resource is a line for each field; with
`--json` either is what the API answered. A resource is named by its id, or by its name where only one has it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from stoker.cli.access import calling
from stoker.cli.errors import CliError
from stoker.cli.job_input import read_input
from stoker.cli.resource_kinds import Kind, Option
from stoker.cli.terminal import plain_console
from stoker.client.management import Resource


@dataclass(frozen=True, slots=True)
class Where:
    url: str
    data_dir: Path
    as_json: bool = False


def carry_out(
    where: Where, kind: Kind, verb: str, options: Sequence[Option], given: Mapping[str, Any]
) -> None:
    """`given`: the member that is meant, and what the options of its fields say."""
    fields = _fields(options, given) if options else {}
    with calling(where.url, where.data_dir) as stoker:
        resource = getattr(stoker.manage, kind.member)
        member = _member(resource, kind, given["member"]) if "member" in given else ""
        match verb:
            case "list":
                rows(where, kind.columns, resource.list(**kind.listed))
            case "get":
                details(where, resource.get(member, **kind.read))
            case "create":
                details(where, resource.create(fields))
            case "update":
                details(where, resource.update(member, fields))
            case "delete":
                resource.delete(member)
                _say(f"{kind.word} {given['member']} is deleted")
            case _:
                details(where, getattr(resource, verb)(member))


def put_secret(where: Where, name: str) -> None:
    with calling(where.url, where.data_dir) as stoker:
        stoker.manage.secrets.put(name, unseen(f"The value of {name}"))
    _say(f"secret {name} is stored; workers and pods that are made from now on have it")


def show_secrets(where: Where) -> None:
    with calling(where.url, where.data_dir) as stoker:
        rows(where, ("name", "createdAt", "changedAt"), stoker.manage.secrets.list())


def delete_secret(where: Where, name: str) -> None:
    with calling(where.url, where.data_dir) as stoker:
        stoker.manage.secrets.delete(name)
    _say(f"secret {name} is deleted")


def show_audit(where: Where, limit: int, before: int | None) -> None:
    with calling(where.url, where.data_dir) as stoker:
        found = stoker.manage.audit(limit=limit, before=before)
    rows(where, ("id", "at", "key", "method", "path", "status", "message"), found)


def unseen(prompt: str) -> str:
    """Typed unseen, or a line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(prompt, hide_input=True, err=True))
    return sys.stdin.read().rstrip("\r\n")


def _fields(options: Sequence[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """A file's fields, then those of --set, then those that have an option of their own."""
    body = given["body"]
    source = body if body in (None, "-") else f"@{body}"
    found = read_input(source, given["sets"] or (), sys.stdin.buffer.read)
    for option in options:
        value = given.get(option.field)
        if option.hidden:
            if option.field not in found:
                found[option.field] = unseen(option.help)
        elif option.pairs and value:
            found[option.field] = dict(_pair(option, one) for one in value)
        elif value not in (None, []):
            found[option.field] = value
    return found


def _pair(option: Option, given: str) -> tuple[str, str]:
    name, mark, value = given.partition("=")
    if not mark:
        raise CliError(f"{option.flag} takes NAME=VALUE; got {given!r}")
    return name, value


def _member(resource: Resource, kind: Kind, name: str) -> str:
    """The id of what is called so; an id that is not listed is the API's to refuse."""
    found = resource.list(**kind.listed)
    if any(one.get("id") == name for one in found):
        return name
    ids = [str(one["id"]) for one in found if one.get("name") == name]
    if len(ids) > 1:
        raise CliError(f"{len(ids)} {kind.member} are called {name}: say which by its id: {', '.join(ids)}")
    return ids[0] if ids else name


# ---- printing


def rows(where: Where, columns: Sequence[str], found: Sequence[Mapping[str, Any]]) -> None:
    if where.as_json:
        _print_json(found)
        return
    told = [[cell(one.get(column)) for column in columns] for one in found]
    if not sys.stdout.isatty():
        for row in told:
            print("\t".join(row))
        return
    table = Table(*columns)
    for row in told:
        table.add_row(*row)
    plain_console().print(table)


def details(where: Where, found: Mapping[str, Any]) -> None:
    if where.as_json:
        _print_json(found)
        return
    for name, value in found.items():
        print(f"{name}: {cell(value)}")


def cell(value: Any) -> str:
    """One line, whatever it is."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(cell(_named(one)) for one in value)
        case dict():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return " ".join(str(value).split())


def _named(value: Any) -> Any:
    """What stands for it in a list."""
    return value.get("name") or value.get("id") or value if isinstance(value, dict) else value


def _print_json(found: Any) -> None:
    print(json.dumps(found, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def _say(text: str) -> None:
    plain_console(stderr=True).print(text, soft_wrap=True)
