"""The options of `stoker weights ...`; `weights_commands` implements the commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.options import ConfigFile, config_file, examples
from stoker.cli.pasted import clean_option

app = typer.Typer(help="Weights of the hosted models, pinned by weights.lock.", no_args_is_help=True)

WeightsDir = Annotated[
    Path | None,
    typer.Option(
        "--dir", envvar="STOKER_WEIGHTS_DIR", help="Folder of the weights; a cache folder by default."
    ),
]
LockFile = Annotated[
    Path | None, typer.Option("--lock", help="A lock file of your own instead of Stoker's weights.lock.")
]
Names = Annotated[list[str] | None, typer.Argument(help="Names in weights.lock; all by default.")]


@app.command("list", epilog=examples("stoker weights list"))
def show(
    folder: WeightsDir = None,
    lock_file: LockFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print records as JSON.")] = False,
) -> None:
    """Lists the entries of weights.lock: whether they are locked, fetched and verified, size and licence."""
    from stoker.cli.manage import weights_commands
    from stoker.models.weights import weights_folder

    weights_commands.show(folder or weights_folder(), lock_file, as_json=as_json)


@app.command(
    "lock",
    epilog=examples(
        "stoker weights lock flux-1-dev",
        "stoker weights lock ours --from /data/ours --lock ours.lock",
    ),
)
def lock(
    name: Annotated[str, typer.Argument(help="The entry to fill, or to add to a lock file of your own.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Trust the files of this folder instead of the hub's records.", file_okay=False
        ),
    ] = None,
    lock_file: LockFile = None,
    licence: Annotated[str | None, typer.Option(help="The licence of the weights, for the entry.")] = None,
) -> None:
    """Writes the size and sha256 of each file to weights.lock."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.manage import weights_commands

    weights_commands.lock(name, folder, lock_file, licence, plain_console())


@app.command(
    "fetch",
    epilog=examples(
        "stoker weights fetch flux-1-schnell",
        "stoker weights fetch flux-1-schnell --mirror s3://models/mirror",
    ),
)
def fetch(
    names: Names = None,
    folder: WeightsDir = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            callback=clean_option, help="Fetch from a folder or s3://bucket/prefix instead of the hub."
        ),
    ] = None,
    config: ConfigFile = None,
    lock_file: LockFile = None,
) -> None:
    """Downloads weights at the locked commit and verifies them."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.manage import weights_commands
    from stoker.models.weights import weights_folder

    where = folder or weights_folder()
    weights_commands.fetch_all(
        names or (), where, mirror, config_file(config), os.environ, plain_console(), lock_file
    )


@app.command("verify", epilog=examples("stoker weights verify flux-1-schnell"))
def verify(names: Names = None, folder: WeightsDir = None, lock_file: LockFile = None) -> None:
    """Compares the files with weights.lock and names those that are missing, altered or not locked."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.manage import weights_commands
    from stoker.models.weights import weights_folder

    weights_commands.verify_all(names or (), folder or weights_folder(), plain_console(), lock_file)


@app.command("remove", epilog=examples("stoker weights remove flux-1-schnell"))
def remove(
    names: Annotated[list[str], typer.Argument(help="Names of weights in the folder.")],
    folder: WeightsDir = None,
) -> None:
    """Removes weights from this machine's disk, and what has arrived of a fetch that was interrupted."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.manage import weights_commands
    from stoker.models.weights import weights_folder

    weights_commands.remove(names, folder or weights_folder(), plain_console())
