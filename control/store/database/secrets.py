"""Encryption of what must not be read from a stolen database file: with keys (Fernet) kept outside the file.

The keys come from STOKER_SECRET_KEY, else from `secret.key` in the data folder, which is made at the first
start and must be readable by its owner only. Each is a word: the first one seals, all of them open.
A key file that is replaced is read again, so that a running control seals with the key that was put first.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

log = logging.getLogger(__name__)

VARIABLE = "STOKER_SECRET_KEY"
FILE = "secret.key"
_HOW = "32 random bytes in URL-safe base64, as cryptography's Fernet.generate_key() makes them"


class SecretKeyError(Exception):
    """The key to the secrets is missing, unsafe or the wrong one; the text says which."""


class Encryption:
    """Seals bytes with the first of some keys, and opens what was sealed with any of them. `file`: the file
    that they were read from, if it is to be read again once it is replaced."""

    def __init__(self, keys: bytes | str, origin: str = "the given key", *, file: Path | None = None) -> None:
        self.origin = origin
        self._file = file
        self._stamp = None if file is None else _stamp(file)
        self._take(_parsed(keys, origin))

    def _take(self, keys: tuple[bytes, ...], before: tuple[bytes, ...] = ()) -> None:
        """Seals with the first of the keys from now on. Those of `before` still open: another thread may have
        read a value just before it was sealed anew, and the old key dropped."""
        made = [_fernet(key, self.origin) for key in dict.fromkeys((*keys, *before))]
        self._all = MultiFernet(made)
        self._first = made[0]
        self.keys = keys

    def seal(self, clear: bytes) -> bytes:
        self._look_again()
        return self._first.encrypt(clear)

    def open(self, sealed: bytes) -> bytes:
        self._look_again()
        try:
            return self._all.decrypt(sealed)
        except InvalidToken:
            raise SecretKeyError(
                f"{self.origin} does not open the secrets in the database: it was written with another key"
            ) from None

    def resealed(self, sealed: bytes) -> bytes | None:
        """Returns the same sealed with the first key; None where that is what it is sealed with."""
        self._look_again()
        try:
            self._first.decrypt(sealed)
        except InvalidToken:
            return self._first.encrypt(self.open(sealed))
        return None

    @property
    def looks_again(self) -> bool:
        """True where a change of the keys is noticed."""
        return self._file is not None

    def key_file(self) -> bytes:
        """Returns what a key file of these keys holds."""
        return b"\n".join(self.keys)

    def _look_again(self) -> None:
        """Takes the keys of a file that was replaced. Without the key in use among them it is not a
        rotation: what is in the database would not be opened any more."""
        if self._file is None or (stamp := _stamp(self._file)) in (None, self._stamp):
            return
        try:
            keys = _parsed(_read(self._file), self.origin)
            if self.keys[0] not in keys:
                raise SecretKeyError(f"{self.origin} was replaced by other keys")
            self._take(keys, self.keys)
        except (SecretKeyError, OSError) as error:
            log.warning("%s; the keys of before stay in use", error)
        self._stamp = stamp  # only now: until then, other threads look for themselves


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _parsed(text: bytes | str, origin: str) -> tuple[bytes, ...]:
    words = (text.encode() if isinstance(text, str) else text).replace(b",", b" ").split()
    if not words:
        raise SecretKeyError(f"{origin} is not a key: it must be {_HOW}")
    return tuple(dict.fromkeys(words))


def _fernet(key: bytes, origin: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        raise SecretKeyError(f"{origin} is not a key: it must be {_HOW}") from None


def key_name(key: bytes) -> str:
    """Returns what may be shown of a key."""
    return hashlib.sha256(key).hexdigest()[:8]


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
    return Encryption(_read(path), f"the key file {path}", file=path)


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


def replace_key_file(path: Path, keys: Sequence[bytes]) -> None:
    """Puts these keys in the place of the file's: a crash leaves the old file or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write(part, b"\n".join(keys) + b"\n")
        os.replace(part, path)
    except OSError as error:
        raise SecretKeyError(f"the key file {path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


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
