"""The options of `stoker key ...`; what the commands do is `key_commands`."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker.cli.options import DATA_DIR, ConfigFile, DataDir, config_file
from stoker.cli.terminal import plain_console

app = typer.Typer(help="API keys and join tokens.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="As the API writes it.")]
Join = Annotated[bool, typer.Option("--join", help="Join tokens of agents instead of API keys.")]


@app.command("create")
def create(
    name: Annotated[str, typer.Option(help="What it is for.")] = "key",
    join: Join = False,
    uses: Annotated[
        int | None, typer.Option(min=1, help="How many nodes may join with it; any number by default.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="SPAN", help="When it ends: 90s, 30m, 24h, 7d from now.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="It looks at everything but keys.")] = False,
    management: Annotated[
        str | None, typer.Option(metavar="RIGHT", help="A restricted key: none, read or write below /v1.")
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=RIGHT", help="The same for an endpoint; * is all that are not named."),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
) -> None:
    """Makes one and shows it this once."""
    from stoker.cli import key_commands

    wanted = key_commands.NewKey(name, join, uses, expires, read_only, management, tuple(endpoint or ()))
    key_commands.create(data_dir, config_file(config), wanted, plain_console(), as_json=as_json)


@app.command("list")
def show(
    join: Join = False, as_json: AsJson = False, data_dir: DataDir = DATA_DIR, config: ConfigFile = None
) -> None:
    """Their ids and names; never the keys themselves."""
    from stoker.cli import key_commands

    key_commands.show(data_dir, config_file(config), join=join, console=plain_console(), as_json=as_json)


@app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(help="The id that `list` shows.")],
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
) -> None:
    """From now on it opens nothing."""
    from stoker.cli import key_commands

    key_commands.revoke(data_dir, config_file(config), key, plain_console())


@app.command("webhook-secret")
def webhook_secret(data_dir: DataDir = DATA_DIR, config: ConfigFile = None) -> None:
    """The secret that webhooks are signed with; whoever receives them checks with it."""
    from stoker.cli import key_commands

    key_commands.webhook_secret(data_dir, config_file(config))
