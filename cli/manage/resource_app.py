"""The options of `stoker endpoint|template|pod|volume|registry|node ...`, generated from `resource_kinds`,
and those of `stoker secret ...` and `stoker audit`."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeAlias

import typer

from stoker.cli.manage.resource_kinds import KINDS, Option, ResourceKind
from stoker.cli.options import DATA_DIR, URL, DataDir, Url, examples

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the API's JSON.")]
Sets: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=JSON", help="Any field of the API; may be repeated."),
]
Body: TypeAlias = Annotated[
    str | None,
    typer.Option("--file", metavar="FILE", help="A file with a JSON object of fields; - for standard input."),
]
SecretName: TypeAlias = Annotated[str, typer.Argument(help="The name in `{{ STOKER_SECRET_name }}`.")]

_Parameter: TypeAlias = tuple[str, Any, Any]
"""Name, annotation and default."""

_ID: _Parameter = (
    "member",
    Annotated[str, typer.Argument(metavar="ID", help="Its id, the beginning of it, or its name.")],
    Parameter.empty,
)
_WHERE: tuple[_Parameter, ...] = (
    ("as_json", Json, False),
    ("url", Url, URL),
    ("data_dir", DataDir, DATA_DIR),
)
_FIELDS: tuple[_Parameter, ...] = (("sets", Sets, None), ("body", Body, None))


def add_to(app: typer.Typer) -> None:
    for kind in KINDS:
        made = _app(kind)
        if kind.command == "node":
            made.command("drain", epilog=examples("stoker node drain gpu-host-1 --wait --deadline 30m"))(
                drain
            )
        app.add_typer(made, name=kind.command)
    app.add_typer(secret_app, name="secret")
    app.command("audit", epilog=examples("stoker audit --limit 20"))(audit)


def _app(kind: ResourceKind) -> typer.Typer:
    app = typer.Typer(help=kind.help, no_args_is_help=True)
    changed = tuple(option for option in kind.options if not option.only_on_create)
    a = "an" if kind.command[0] in "aeiou" else "a"
    _add(app, kind, "list", f"Lists {kind.member}.")
    _add(app, kind, "get", f"Shows {a} {kind.command} with all its fields.", _ID)
    if kind.options:
        _add(app, kind, "create", f"Creates {a} {kind.command}.", options=kind.options)
    if kind.options and kind.updatable:
        help_text = f"Updates {a} {kind.command}; fields that are left out do not change."
        _add(app, kind, "update", help_text, _ID, options=changed)
    _add(app, kind, "delete", f"Deletes {a} {kind.command}.", _ID)
    for action, help_text in kind.actions.items():
        _add(app, kind, action, help_text, _ID)
    return app


def _add(
    app: typer.Typer,
    kind: ResourceKind,
    verb: str,
    help_text: str,
    *parameters: _Parameter,
    options: Sequence[Option] = (),
) -> None:
    """Adds a command with these parameters, which typer reads from the function's signature."""

    def command(**values: Any) -> None:
        from stoker.cli.manage import resource_commands as resources

        service = resources.Service(values.pop("url"), values.pop("data_dir"), values.pop("as_json"))
        resources.run_command(service, kind, verb, options, values)

    fields = (*(_parameter(option) for option in options if not option.hidden), *_FIELDS) if options else ()
    signature = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in (*parameters, *fields, *_WHERE)
    ]
    command.__signature__ = Signature(signature)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in signature}
    command_line = (
        "stoker",
        kind.command,
        verb,
        *([kind.example] if parameters else []),
        kind.fields.get(verb, ""),
    )
    app.command(verb, help=help_text, epilog=examples(" ".join(filter(None, command_line))))(command)


def _parameter(option: Option) -> _Parameter:
    metavar = "NAME=VALUE" if option.pairs else "VALUE"
    kind: Any = list[str] | None if option.many or option.pairs else option.type | None
    return option.field, Annotated[kind, typer.Option(option.flag, help=option.help, metavar=metavar)], None


def drain(
    member: Annotated[str, typer.Argument(metavar="ID", help="Its id, the beginning of it, or its name.")],
    wait: Annotated[bool, typer.Option("--wait", help="Stay until no worker is left there.")] = False,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Wait this long at most, such as 90s or 30m; then status 1. Jobs that save go on elsewhere.",
        ),
    ] = None,
    as_json: Json = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Places nothing new on a node; running work goes on, and pods stay."""
    from stoker.cli.manage import node_commands
    from stoker.cli.manage.resource_commands import Service
    from stoker.cli.manage.spans import seconds

    deadline_s = None if deadline is None else seconds("--deadline", deadline)
    wait = wait or deadline is not None
    node_commands.drain(Service(url, data_dir, as_json), member, wait=wait, deadline_s=deadline_s)


def audit(
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, help="How many lines.")] = 50,
    before: Annotated[
        int | None, typer.Option(min=1, help="Only lines older than the line with this id.")
    ] = None,
    as_json: Json = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Lists who changed what over the management API, and who was refused, newest first."""
    from stoker.cli.manage import resource_commands as resources

    resources.show_audit(resources.Service(url, data_dir, as_json), limit, before)


# ---- secrets

secret_app = typer.Typer(
    help="Secrets: values for environments, which the API never returns.", no_args_is_help=True
)


@secret_app.command("list", epilog=examples("stoker secret list --json"))
def secret_list(as_json: Json = False, url: Url = URL, data_dir: DataDir = DATA_DIR) -> None:
    """Lists the names of all secrets."""
    from stoker.cli.manage import resource_commands as resources

    resources.show_secrets(resources.Service(url, data_dir, as_json))


@secret_app.command("set", epilog=examples("stoker secret set hf_token"))
def secret_set(name: SecretName, url: Url = URL, data_dir: DataDir = DATA_DIR) -> None:
    """Stores a secret; the value is typed without echo or read from standard input."""
    from stoker.cli.manage import resource_commands as resources

    resources.put_secret(resources.Service(url, data_dir), name)


@secret_app.command("delete", epilog=examples("stoker secret delete hf_token"))
def secret_delete(name: SecretName, url: Url = URL, data_dir: DataDir = DATA_DIR) -> None:
    """Deletes a secret that nothing refers to."""
    from stoker.cli.manage import resource_commands as resources

    resources.delete_secret(resources.Service(url, data_dir), name)
