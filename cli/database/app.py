"""The options of `stoker database ...`, `stoker backup` and `stoker restore`; their modules do the work."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker.cli.options import DATA_DIR, ConfigFile, DataDir, config_file, examples
from stoker.cli.terminal import plain_console

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
    from stoker.cli.database import tables

    tables.upgrade(data_dir, config_file(config), plain_console())
