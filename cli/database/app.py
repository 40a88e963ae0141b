"""The options of `stoker database ...`, `stoker backup` and `stoker restore`; their modules do the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.options import DATA_DIR, ConfigFile, DataDir, config_file, examples

app = typer.Typer(help="Look after control's database.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("status", epilog=examples("stoker database status", "stoker database status --json"))
def status(as_json: AsJson = False, data_dir: DataDir = DATA_DIR, config: ConfigFile = None) -> None:
    """Shows the database, its schema version and size, and if a control has it open. Changes nothing."""
    from stoker.cli.database import tables

    tables.status(data_dir, config_file(config), as_json=as_json)


@app.command("upgrade", epilog=examples("stoker database upgrade"))
def upgrade(data_dir: DataDir = DATA_DIR, config: ConfigFile = None) -> None:
    """Brings tables of an earlier version up to this one's, as the start of control does."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.database import tables

    tables.upgrade(data_dir, config_file(config), plain_console())


@app.command(
    "rotate-key", epilog=examples("stoker database rotate-key", "stoker database rotate-key --drop-old")
)
def rotate_key(
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Remove the old key, once nothing is sealed with it.")
    ] = False,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
) -> None:
    """Makes a new secret key and seals all secrets in the database with it; control may run."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.database import rotation

    rotation.rotate(data_dir, config_file(config), drop_old=drop_old, console=plain_console())


def backup(
    file: Annotated[Path, typer.Argument(dir_okay=False, help="The new file.")],
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Put the key to the database's secrets in: guard the file.")
    ] = False,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
) -> None:
    """Writes control's database into a file, as it is at one moment; control may run."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.database import backups

    backups.backup(data_dir, config_file(config), file, with_keys=with_keys, console=plain_console())


def restore(
    file: Annotated[Path, typer.Argument(dir_okay=False, help="A file of `stoker backup`.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the store that is there.")] = False,
    data_dir: DataDir = DATA_DIR,
    config: ConfigFile = None,
) -> None:
    """Makes control's database from a backup; control must not run."""
    from stoker.cli.consoles import plain_console
    from stoker.cli.database import backups

    backups.restore(data_dir, config_file(config), file, force=force, console=plain_console())


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="database")
    main.command("backup", epilog=examples("stoker backup stoker.backup", "stoker backup --with-keys b.tar"))(
        backup
    )
    main.command("restore", epilog=examples("stoker restore stoker.backup", "stoker restore --force b.tar"))(
        restore
    )
