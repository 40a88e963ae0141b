"""Options that more than one command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.errors import CliError

DATA_DIR = Path(".stoker")
URL = "http://127.0.0.1:8000"

DataDir = Annotated[
    Path, typer.Option("--data-dir", envvar="STOKER_DATA_DIR", help="Where everything is kept.")
]
Url = Annotated[str, typer.Option(envvar="STOKER_URL", help="Where control is.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Configuration; stoker.toml is taken where there is one.")
]


def config_file(given: Path | None) -> Path | None:
    """The one that is given, else stoker.toml where there is one. Raises CliError."""
    found = given or Path("stoker.toml")
    if found.exists():
        return found.absolute()
    if given is not None:
        raise CliError(f"there is no configuration file {given}")
    return None
