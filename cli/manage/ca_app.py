"""The options of `stoker ca ...`; `ca_commands` implements the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker.cli.options import DATA_DIR, DataDir, examples

app = typer.Typer(
    help="The private authority that signs certificates of control and of nodes.", no_args_is_help=True
)


@app.command("init", epilog=examples("stoker ca init"))
def init(data_dir: DataDir = DATA_DIR) -> None:
    """Makes the authority of this control, in the folder ca of its data folder."""
    from stoker.cli.manage import ca_commands

    ca_commands.init(data_dir)


@app.command("issue", epilog=examples("stoker ca issue control.example.com 203.0.113.7"))
def issue(
    names: Annotated[
        list[str], typer.Argument(help="Names and IP addresses at which agents and callers reach control.")
    ],
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Makes the certificate of control's ports, in place of the one before."""
    from stoker.cli.manage import ca_commands

    ca_commands.issue(data_dir, names)


@app.command("show", epilog=examples("stoker ca show", "stoker ca show --pem"))
def show(
    pem: Annotated[
        bool, typer.Option("--pem", help="Print the certificates, for those who trust it.")
    ] = False,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Shows the authority, what agents pin, and when its certificates end."""
    from stoker.cli.manage import ca_commands

    ca_commands.show(data_dir, pem=pem)


@app.command("rotate", epilog=examples("stoker ca rotate", "stoker ca rotate --drop-old"))
def rotate(
    drop_old: Annotated[
        bool,
        typer.Option("--drop-old", help="End the trust in the older ones: nothing that they signed counts."),
    ] = False,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Makes a new authority, which signs from now on; those before it are trusted until they are dropped."""
    from stoker.cli.manage import ca_commands

    ca_commands.rotate(data_dir, drop_old=drop_old)
