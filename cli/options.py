"""Options that more than one command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DATA_DIR = Path(".stoker")
URL = "http://127.0.0.1:8000"

DataDir = Annotated[
    Path, typer.Option("--data-dir", envvar="STOKER_DATA_DIR", help="Where everything is kept.")
]
Url = Annotated[str, typer.Option(envvar="STOKER_URL", help="Where control is.")]
