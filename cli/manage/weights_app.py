"""The options of `stoker weights ...`; what the commands do is `weights_commands`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.options import ConfigFile, config_file
from stoker.cli.terminal import plain_console

app = typer.Typer(help="What the hosted models load, pinned by weights.lock.", no_args_is_help=True)

WeightsDir = Annotated[
    Path | None,
    typer.Option("--dir", envvar="STOKER_WEIGHTS_DIR", help="Where weights lie; a cache by default."),
]
Names = Annotated[list[str] | None, typer.Argument(help="Names in weights.lock.")]


@app.command("lock")
def lock(
    name: Annotated[str, typer.Argument(help="The entry of weights.lock to fill.")],
    folder: Annotated[
        Path | None,
        typer.Option("--from", help="Trust this folder, instead of asking the hub.", file_okay=False),
    ] = None,
    lock_file: Annotated[Path | None, typer.Option("--lock", help="Another weights.lock.")] = None,
) -> None:
    """Writes size and sha256 of each file into weights.lock."""
    from stoker.cli import weights_commands

    weights_commands.lock(name, folder, lock_file, plain_console())


@app.command("fetch")
def fetch(
    names: Names = None,
    folder: WeightsDir = None,
    mirror: Annotated[
        str | None, typer.Option(help="A folder or s3://bucket/prefix, instead of the hub.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Brings what the lock names, at the locked commit, and verifies it."""
    from stoker.cli import weights_commands
    from stoker.models.weights import weights_folder

    where = folder or weights_folder()
    weights_commands.fetch_all(names or (), where, mirror, config_file(config), os.environ, plain_console())


@app.command("verify")
def verify(names: Names = None, folder: WeightsDir = None) -> None:
    """Compares what is here with the lock; whatever is missing, altered or unlocked is named."""
    from stoker.cli import weights_commands
    from stoker.models.weights import weights_folder

    weights_commands.verify_all(names or (), folder or weights_folder(), plain_console())
