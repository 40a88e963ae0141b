"""Settings from the environment, or else from a file `.env`, which python-dotenv reads."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from stoker.client.errors import ClientError
from stoker.client.pasted import cleaned

FILE = ".env"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def lookup(name: str, environ: Mapping[str, str], folder: Path) -> str | None:
    """Returns the variable from the environment, else from `.env` in `folder`, cleaned. An empty value counts
    as not set. Raises ClientError for a file that cannot be read."""
    return cleaned(environ.get(name, "")) or cleaned(_read(folder / FILE).get(name) or "") or None


def _read(file: Path) -> Mapping[str, str | None]:
    """Returns nothing if there is no such file. A folder of this name is a virtual environment."""
    try:
        content = file.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return {}
    except OSError as error:
        raise ClientError(f"{file} cannot be read: {error.strerror}") from None
    from dotenv import dotenv_values

    return dotenv_values(stream=io.StringIO(_text(content, file)))


def _text(content: bytes, file: Path) -> str:
    """Reads UTF-8, and UTF-16 with its mark, as Windows' shell writes it."""
    try:
        text = content.decode("utf-16" if content.startswith(_UTF_16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ClientError(f"{file} is not UTF-8 text in line {line}; save it as UTF-8") from None
    if "\0" in text:
        raise ClientError(f"{file} is not UTF-8 text: it holds zero bytes; save it as UTF-8")
    return text
