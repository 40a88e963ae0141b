"""Fetches of a `LocalJob`: a path, a file:// URL, a URL whose file is here, and http(s) if it is allowed.

There is no guard against private addresses and no cache. Sizes and times are limited as on the platform, and
refusals have the same reasons.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import MappingProxyType
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from stoker.worker.errors import InputRefused
from stoker.worker.frames import Frame
from stoker.worker.job.inputs import public_url

_READ_BYTES = 1 << 20
NO_FILES: Mapping[str, str] = MappingProxyType({})


def fetched_locally(request: Frame, *, network: bool, files: Mapping[str, str] = NO_FILES) -> Frame:
    """Returns the answer to a `fetch` frame, as the agent would give it. `files`: the paths of files that are
    here, by their URL without its query; empty where the file cannot be had."""
    about = {name: request.fields[name] for name in ("job", "attempt", "n")}
    try:
        fd = _opened(request.fields, files, network=network)
    except InputRefused as refused:
        fields = {"error": str(refused), "reason": refused.reason, "retryable": refused.retryable}
        return Frame("fetch_failed", {**about, **fields})
    with open(fd, "rb", closefd=False) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Frame("fetched", {**about, "size": os.fstat(fd).st_size, "sha256": digest}, fd=fd)


def _opened(fields: dict[str, Any], files: Mapping[str, str], *, network: bool) -> int:
    url, most = fields["url"], fields["max_bytes"]
    if (known := files.get(public_url(url))) is not None:
        if not known:
            raise InputRefused(f"{public_url(url)} is not to be had here", "unreachable")
        return _of_path(known, most)
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        if not network:
            message = f"{public_url(url)} is not fetched by a LocalJob; give a path, or network=True"
            raise InputRefused(message, "unreachable")
        return _downloaded(url, most, fields["timeout_s"])
    if parts.scheme not in ("", "file"):
        raise InputRefused(f"{public_url(url)} is refused: the scheme must be http or https", "scheme")
    return _of_path(unquote(parts.path) if parts.scheme == "file" else url, most)


def _of_path(path: str, most: int) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InputRefused(f"{path} cannot be opened: {error.strerror}", "not_found") from None
    if (size := os.fstat(fd).st_size) > most:
        os.close(fd)
        raise InputRefused(f"{path} has {size} bytes; at most {most} are allowed", "too_large")
    return fd


def _downloaded(url: str, most: int, timeout_s: float) -> int:
    until = time.monotonic() + timeout_s
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer, tempfile.TemporaryFile() as file:
            _copy(answer, file, url, most, until)
            return os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
    except urllib.error.HTTPError as error:
        error.close()
        reason = "not_found" if error.code in (404, 410) else "http_status"
        again = error.code >= 500 or error.code == 429
        raise InputRefused(f"{public_url(url)} answered {error.code}", reason, retryable=again) from None
    except TimeoutError:
        raise _too_slow(url) from None
    except (OSError, ValueError) as error:
        raise InputRefused(
            f"{public_url(url)} cannot be reached: {error}", "unreachable", retryable=True
        ) from None


def _copy(answer: IO[bytes], file: IO[bytes], url: str, most: int, until: float) -> None:
    size = 0
    while data := answer.read(_READ_BYTES):
        size += len(data)
        if size > most:
            message = f"{public_url(url)} is more than the {most} bytes that are allowed"
            raise InputRefused(message, "too_large")
        if time.monotonic() > until:
            raise _too_slow(url)
        file.write(data)
    file.flush()


def _too_slow(url: str) -> InputRefused:
    return InputRefused(f"{public_url(url)} was not fetched in time", "too_slow", retryable=True)
