"""How commands that are plain callers reach the service: with which key, and what to say when it is away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from stoker.cli import dotenv
from stoker.cli.data_folder import DataFolder, read_private
from stoker.cli.errors import CliError
from stoker.client import Client, ClientError, Unreachable

RESENDS = 1
"""Of a call that did not get through: whoever sits at a terminal would rather be told soon."""


def find_key(data_dir: Path) -> str:
    """STOKER_API_KEY from the environment or `.env`, else the key that `stoker up` keeps."""
    given = dotenv.lookup("STOKER_API_KEY", os.environ, Path.cwd())
    if given is not None:
        return given
    path = DataFolder(data_dir.absolute()).api_key
    try:
        return read_private(path)
    except FileNotFoundError:
        raise CliError(
            f"no API key: set STOKER_API_KEY in the environment or in .env (there is none in {path} either)"
        ) from None


@contextmanager
def calling(url: str, data_dir: Path) -> Iterator[Client]:
    """A client whose sentences are the command's: `main` needs no list of everybody's errors for them."""
    with told(url), Client(url, find_key(data_dir), resends=RESENDS) as stoker:
        yield stoker


@contextmanager
def told(url: str) -> Iterator[None]:
    """Inside, what a client says has gone wrong ends the command."""
    try:
        with asking(url):
            yield
    except ClientError as error:
        raise CliError(str(error)) from error


@contextmanager
def asking(url: str) -> Iterator[None]:
    """Inside, what goes wrong with the address is told with what to do about it."""
    try:
        yield
    except Unreachable as error:
        raise CliError(f"{error}; is `stoker up` running at {url}?") from error
    except httpx.InvalidURL as error:
        raise CliError(f"{url} is not an address: {error}") from error
