"""Inputs of hosted models that are files or URLs: a file of this machine is uploaded, a URL is passed on."""

from __future__ import annotations

import mimetypes
import os
from pathlib import Path
from typing import Final

from stoker.cli.errors import CliError
from stoker.client import AsyncClient

UPLOAD_MAX_BYTES: Final = 60 << 20
"""The service's limit for an uploaded file. Checked first: the service refuses only after the whole
upload."""


def check_source(source: str) -> None:
    """Raises CliError for a file that cannot be uploaded."""
    if _is_url(source):
        return
    if not Path(source).is_file():
        raise CliError(f"there is no file {source}; give a file or an http URL")
    if not os.access(source, os.R_OK):
        raise CliError(f"{source} cannot be read: permission denied")
    size = Path(source).stat().st_size
    if not size:
        raise CliError(f"{source} is empty")
    if size > UPLOAD_MAX_BYTES:
        raise CliError(f"{source} has {size:,} bytes; a file to upload may have {UPLOAD_MAX_BYTES:,}")


async def url_of(stoker: AsyncClient, endpoint: str, source: str) -> str:
    """Returns the URL of a source, which is uploaded if it is a file."""
    if _is_url(source):
        return source
    media_type, _ = mimetypes.guess_type(source)
    return await stoker.upload(endpoint, Path(source), media_type or "application/octet-stream")


def _is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))
