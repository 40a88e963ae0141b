"""The options of `stoker endpoint|template|pod|volume|registry|node ...`, made from the table of kinds; and
those of `stoker secret ...` and `stoker audit`."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeAlias

import typer

from stoker.cli.options import DATA_DIR, URL, DataDir, Url
from stoker.cli.resource_kinds import KINDS, Kind, Option

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="As the API writes it.")]
Sets: TypeAlias = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=JSON", help="Any other field of the API.")
]
Body: TypeAlias = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="A JSON object of fields; - is standard input.")
]
SecretName: TypeAlias = Annotated[str, typer.Argument(help="As `{{ STOKER_SECRET_name }}` calls it.")]

_Parameter: TypeAlias = tuple[str, Any, Any]
"""Its name, its annotation and its default."""

_MEMBER: _Parameter = (
    "member",
    Annotated[str, typer.Argument(metavar="ID", help="Its id, or its name.")],
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
        app.add_typer(_app(kind), name=kind.word)
    app.add_typer(secret_app, name="secret")
    app.command("audit")(audit)


def _app(kind: Kind) -> typer.Typer:
    app = typer.Typer(help=kind.help, no_args_is_help=True)
    changed = tuple(option for option in kind.options if not option.at_first)
    a = "an" if kind.word[0] in "aeiou" else "a"
    _add(app, kind, "list", f"Lists {kind.member}.")
    _add(app, kind, "get", f"Tells everything of {a} {kind.word}.", _MEMBER)
    if kind.options:
        _add(app, kind, "create", f"Makes {a} {kind.word}.", options=kind.options)
    if kind.options and kind.changes:
        said = f"Changes {a} {kind.word}; what is left out stays."
        _add(app, kind, "update", said, _MEMBER, options=changed)
    _add(app, kind, "delete", f"Deletes {a} {kind.word}.", _MEMBER)
    for action, said in kind.actions.items():
        _add(app, kind, action, said, _MEMBER)
    return app


def _add(
    app: typer.Typer,
    kind: Kind,
    verb: str,
    said: str,
    *parameters: _Parameter,
    options: Sequence[Option] = (),
) -> None:
    """A command with these parameters, which typer reads from a function's signature."""

    def command(**given: Any) -> None:
        from stoker.cli import resource_commands as resources

        where = resources.Where(given.pop("url"), given.pop("data_dir"), given.pop("as_json"))
        resources.carry_out(where, kind, verb, options, given)

    fields = (*(_parameter(option) for option in options if not option.hidden), *_FIELDS) if options else ()
    wanted = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in (*parameters, *fields, *_WHERE)
    ]
    command.__signature__ = Signature(wanted)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in wanted}
    app.command(verb, help=said)(command)


def _parameter(option: Option) -> _Parameter:
    metavar = "NAME=VALUE" if option.pairs else "VALUE"
    kind: Any = list[str] | None if option.many or option.pairs else option.type | None
    return option.field, Annotated[kind, typer.Option(option.flag, help=option.help, metavar=metavar)], None


def audit(
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, help="How many lines.")] = 50,
    before: Annotated[int | None, typer.Option(min=1, help="Lines older than the one of this id.")] = None,
    as_json: Json = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Who changed what over the management API, and who was refused: the newest first."""
    from stoker.cli import resource_commands as resources

    resources.show_audit(resources.Where(url, data_dir, as_json), limit, before)


# ---- secrets

secret_app = typer.Typer(help="Secrets: values that environments name and nobody sees.", no_args_is_help=True)


@secret_app.command("list")
def secret_list(as_json: Json = False, url: Url = URL, data_dir: DataDir = DATA_DIR) -> None:
    """Their names; never their values."""
    from stoker.cli import resource_commands as resources

    resources.show_secrets(resources.Where(url, data_dir, as_json))


@secret_app.command("set")
def secret_set(name: SecretName, url: Url = URL, data_dir: DataDir = DATA_DIR) -> None:
    """Stores a value, which is typed unseen or read from standard input."""
    from stoker.cli import resource_commands as resources

    resources.put_secret(resources.Where(url, data_dir), name)


@secret_app.command("delete")
def secret_delete(name: SecretName, url: Url = URL, data_dir: DataDir = DATA_DIR) -> None:
    """Deletes a secret that nothing refers to."""
    from stoker.cli import resource_commands as resources

    resources.delete_secret(resources.Where(url, data_dir), name)
