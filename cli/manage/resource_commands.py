"""Commands for resources: call the API and print its response.

A list is a table at a terminal and tab-separated lines elsewhere; one resource is a line for each field; with
`--json`, both are the API's JSON. A resource is named by its id, by its name if that is unique, or by the
unique beginning of its id.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from stoker.cli.access import open_client
from stoker.cli.consoles import plain_console, print_table
from stoker.cli.errors import CliError
from stoker.cli.jobs.input import read_input
from stoker.cli.manage import node_text
from stoker.cli.manage.resource_kinds import KINDS, Option, ResourceKind
from stoker.cli.short_ids import resolve_id
from stoker.cli.tables import print_json, show
from stoker.cli.terminal import print_text
from stoker.client.management import Management, Resource
from stoker.wire.sizes import in_words


@dataclass(frozen=True, slots=True)
class Service:
    url: str
    data_dir: Path
    as_json: bool = False


def run_command(
    service: Service, kind: ResourceKind, verb: str, options: Sequence[Option], values: Mapping[str, Any]
) -> None:
    """Runs a command on a resource, and prints the answer. `values` are the resource's id and the values of
    the options."""
    fields = _fields(options, values) if options else {}
    with open_client(service.url, service.data_dir) as stoker:
        _fill_ids(stoker.manage, options, values, fields)
        resource = getattr(stoker.manage, kind.member)
        member = resolve_member(resource, kind, values["member"]) if "member" in values else ""
        match verb:
            case "list":
                found = resource.list(**kind.list_query)
                if kind.command == "node" and sys.stdout.isatty() and not service.as_json:
                    _show_nodes(found)
                else:
                    rows(service, kind.columns, found)
            case "get":
                found = resource.get(member, **kind.get_query)
                if kind.command == "node" and not service.as_json:
                    for line in node_text.lines_of(found):
                        print_text(line)
                else:
                    details(service, found)
            case "create":
                details(service, resource.create(fields))
            case "update":
                details(service, resource.update(member, fields))
            case "delete":
                resource.delete(member)
                _print_message(f"{kind.command} {_called(values['member'], member)} is deleted")
            case _:
                details(service, getattr(resource, verb)(member))


def put_secret(service: Service, name: str) -> None:
    with open_client(service.url, service.data_dir) as stoker:
        stoker.manage.secrets.put(name, read_secret(f"The value of {name}"))
    _print_message(f"secret {name} is stored; workers and pods that are made from now on have it")


def show_secrets(service: Service) -> None:
    with open_client(service.url, service.data_dir) as stoker:
        rows(service, ("name", "createdAt", "changedAt"), stoker.manage.secrets.list())


def delete_secret(service: Service, name: str) -> None:
    with open_client(service.url, service.data_dir) as stoker:
        stoker.manage.secrets.delete(name)
    _print_message(f"secret {name} is deleted")


def show_audit(service: Service, limit: int, before: int | None) -> None:
    with open_client(service.url, service.data_dir) as stoker:
        found = stoker.manage.audit(limit=limit, before=before)
    rows(service, ("id", "at", "key", "method", "path", "status", "message"), found)


def read_secret(prompt: str) -> str:
    """Returns a value typed without echo, or standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(prompt, hide_input=True, err=True))
    return sys.stdin.read().rstrip("\r\n")


def _fields(options: Sequence[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of the file, then of --set, then of the fields' own options; later ones win."""
    body = values["body"]
    source = body if body in (None, "-") else f"@{body}"
    found = read_input(source, values["sets"] or (), sys.stdin.buffer.read)
    for option in options:
        value = values.get(option.field)
        if option.hidden:
            if option.field not in found:
                found[option.field] = read_secret(option.help)
        elif option.pairs and value:
            found[option.field] = dict(_pair(option, one) for one in value)
        elif value not in (None, []):
            found[option.field] = value
    return found


def _fill_ids(
    manage: Management, options: Sequence[Option], values: Mapping[str, Any], fields: dict[str, Any]
) -> None:
    """Replaces names and beginnings of ids of other resources by whole ids."""
    for option in options:
        if option.refers_to and values.get(option.field):
            kind = next(kind for kind in KINDS if kind.member == option.refers_to)
            fields[option.field] = resolve_member(
                getattr(manage, option.refers_to), kind, values[option.field]
            )


def _pair(option: Option, values: str) -> tuple[str, str]:
    name, equals, value = values.partition("=")
    if not equals:
        raise CliError(f"{option.flag} takes NAME=VALUE; got {values!r}")
    return name, value


def resolve_member(resource: Resource, kind: ResourceKind, name: str) -> str:
    """Returns the id of the resource with this name; a name without a match is sent as it is, and the API
    refuses it."""
    known = ((str(one["id"]), str(one.get("name", ""))) for one in resource.list(**kind.list_query))
    return resolve_id(name, known, kind.member) or name


def _called(values: str, member: str) -> str:
    return member if member.startswith(values) else f"{values} ({member})"


# ---- printing


def rows(service: Service, columns: Sequence[str], found: Sequence[Mapping[str, Any]]) -> None:
    cells = [[_in_list(column, one.get(column)) for column in columns] for one in found]
    titles = [column.removesuffix("InBytes") for column in columns]
    show(titles, cells, found, as_json=service.as_json)


def _show_nodes(nodes: Sequence[Mapping[str, Any]]) -> None:
    console = plain_console()
    print_table(console, node_text.COLUMNS, [node_text.row_of(one) for one in nodes])
    for line in node_text.where_avoided(nodes):
        console.print(line)


def _in_list(column: str, value: Any) -> str:
    if column == "devices" and value:
        return node_text.counted(value)
    return in_words(value) if column.endswith("InBytes") and value is not None else cell(value)


def details(service: Service, found: Mapping[str, Any]) -> None:
    if service.as_json:
        print_json(found)
        return
    for name, value in found.items():
        print_text(f"{name}: {cell(value)}")


def cell(value: Any) -> str:
    """Returns the value as a single line."""
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
    """Returns the name or id of a resource in a list, with its size, such as `flux-1-dev (23.8 GB)`."""
    if not isinstance(value, dict):
        return value
    if "slsVersion" in value:
        return _worker(value)
    if "untilAt" in value:
        return node_text.avoided_node(value)
    name = value.get("name") or value.get("id") or value.get("endpointId") or value
    size = value.get("sizeInBytes")
    return name if size is None else f"{name} ({in_words(size)})"


def _worker(found: Mapping[str, Any]) -> str:
    """Describes a worker of an endpoint, such as `w1k2 IDLE (started in 9.4 s: process 0.2, import 0.1, read
    9.1)`."""
    about = str(found.get("reason") or "")
    if stages := found.get("coldStartMs"):
        parts = ", ".join(f"{stage} {took_ms / 1000:.1f}" for stage, took_ms in stages.items())
        about = f"started in {sum(stages.values()) / 1000:.1f} s: {parts}"
    return f"{found['id']} {found['status']}" + (f" ({about})" if about else "")


def _print_message(text: str) -> None:
    plain_console(stderr=True).print(text, soft_wrap=True)
