"""Encryption of what must not be read from a stolen database file: with one key (Fernet), kept outside the
file.

The key comes from STOKER_SECRET_KEY, else from `secret.key` in the data folder, which is made at the first
start and must be readable by its owner only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

VARIABLE = "STOKER_SECRET_KEY"
FILE = "secret.key"
_HOW = "32 random bytes in URL-safe base64, as cryptography's Fernet.generate_key() makes them"


class SecretKeyError(Exception):
    """The key to the secrets is missing, unsafe or the wrong one; the text says which."""


class Encryption:
    """Seals and opens bytes with one key."""

    def __init__(self, key: bytes | str, origin: str = "the given key") -> None:
        self.origin = origin
        self._key = key if isinstance(key, bytes) else key.encode()
        try:
            self._fernet = Fernet(key)
        except ValueError:
            raise SecretKeyError(f"{origin} is not a key: it must be {_HOW}") from None

    def key_file(self) -> bytes:
        """Returns what a key file of this key holds."""
        return self._key

    def seal(self, clear: bytes) -> bytes:
        return self._fernet.encrypt(clear)

    def open(self, sealed: bytes) -> bytes:
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken:
            raise SecretKeyError(
                f"{self.origin} does not open the secrets in the database: it was written with another key"
            ) from None


def random_secrets() -> Encryption:
    """Returns an encryption with a new key, for a store that does not outlive its process."""
    return Encryption(Fernet.generate_key())


def load_secrets(folder: Path, environ: Mapping[str, str], *, make: bool = True) -> Encryption:
    """Loads the key from the environment, else from the data folder, where it is made when there is none and
    `make` allows that. Raises SecretKeyError."""
    if key := environ.get(VARIABLE):
        return Encryption(key, f"the environment variable {VARIABLE}")
    path = folder / FILE
    if not path.exists():
        if not make:
            raise SecretKeyError(
                f"the key file {path} is missing: control has it in its data folder (--data-dir, or"
                f" {VARIABLE})"
            )
        make_key_file(path)
    return Encryption(_read(path), f"the key file {path}")


def make_key_file(path: Path, content: bytes | None = None) -> None:
    """Makes the key file whole or not at all: half a key, left by a full disk, would have to be found and
    removed by hand."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write(part, content or Fernet.generate_key())
            os.link(part, path)
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError:
        return  # another process made it in this instant
    except OSError as error:
        raise SecretKeyError(f"the key file {path} cannot be written: {error.strerror}") from None


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # of an earlier process that had our number
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise SecretKeyError(
                f"the key file {path} may be read by others (mode {mode:04o}); run chmod 600 on it, "
                "and draw new secrets if someone else could have read it"
            )
        return file.read().strip()
