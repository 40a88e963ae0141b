"""Whole ids of endpoints and jobs for the beginnings that were typed.

Whole ids cost no extra call: a command runs as it was typed, and only if the service knows no such endpoint
or job are the ids looked up.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from stoker.cli.access import open_client
from stoker.cli.errors import CliError
from stoker.cli.short_ids import resolve_id
from stoker.client import ApiError, Client

NEWEST = 10_000
"""How many of an endpoint's jobs are searched, newest first."""

PAGE = 1000


def resolve_ids(stoker: Client, endpoint: str, job: str) -> tuple[str, str]:
    """Returns both whole ids; an id without a match stays as it is. Raises CliError if more than one
    matches."""
    found = _endpoint(stoker, endpoint)
    return found, _job(stoker, found, job) if job else job


def resolve_endpoint(url: str, data_dir: Path, typed: str) -> str:
    """Returns the whole id of an endpoint."""
    with open_client(url, data_dir) as stoker:
        return _endpoint(stoker, typed)


def _endpoint(stoker: Client, typed: str) -> str:
    try:
        listed = stoker.manage.endpoints.list()
    except ApiError:
        return typed  # the key has no right to list endpoints
    known = ((str(one["id"]), str(one.get("name", ""))) for one in listed)
    return resolve_id(typed, known, "endpoints") or typed


def _job(stoker: Client, endpoint: str, typed: str) -> str:
    try:
        newest = islice(stoker.all_requests(endpoint, page=PAGE), NEWEST)
        return resolve_id(typed, [(job.id, "") for job in newest], f"jobs of {endpoint}") or typed
    except ApiError as error:
        raise CliError(str(error)) from error
