"""The API client of commands that call the service: its key, and messages for an unreachable service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from stoker.cli.data_folder import DataFolder, read_private
from stoker.cli.errors import CliError
from stoker.client import Client, ClientError, Unreachable, dotenv

RESENDS = 1
"""How often a failed call is sent again: at a terminal, an early error is better than a late one."""


def find_key(data_dir: Path) -> str:
    """Returns STOKER_API_KEY from the environment or `.env`, else the key that `stoker up` has stored. Raises
    CliError if there is none."""
    key = dotenv.lookup("STOKER_API_KEY", os.environ, Path.cwd())
    if key is not None:
        return key
    path = DataFolder(data_dir.absolute()).api_key
    try:
        return read_private(path)
    except FileNotFoundError:
        raise CliError(
            f"no API key: set STOKER_API_KEY in the environment or in .env (there is none in {path} either)"
        ) from None


def ca_file() -> str | None:
    """Returns STOKER_TLS_CA: a file of the authority that signed the service's certificate, if that authority
    is not a public one."""
    return os.environ.get("STOKER_TLS_CA") or None


@contextmanager
def open_client(url: str, data_dir: Path) -> Iterator[Client]:
    """Opens a client whose errors end the command with their message."""
    with client_errors(url), Client(url, find_key(data_dir), resends=RESENDS, ca_file=ca_file()) as stoker:
        yield stoker


@contextmanager
def client_errors(url: str) -> Iterator[None]:
    """Turns errors of a client into CliError."""
    try:
        with address_errors(url):
            yield
    except ClientError as error:
        raise CliError(str(error)) from error


@contextmanager
def address_errors(url: str) -> Iterator[None]:
    """Turns errors of the address into CliError, with advice."""
    try:
        yield
    except Unreachable as error:
        raise CliError(f"{error}; is `stoker up` running at {url}?") from error
    except httpx2.InvalidURL as error:
        raise CliError(f"{url} is not an address: {error}") from error
