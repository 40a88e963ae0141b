"""The files of the private authority, in the folder `ca` of control's data folder.

    ca.key        its key, and its certificates: the one that signs, then older ones that are trusted
                  (mode 0600)
    ca.pem        the certificates alone, for those who trust it
    control.key   the key of control's ports (mode 0600)
    control.pem   their certificate, with that of the authority that signed it

A rotation replaces key and certificates at once, since they are one file. Controls of one database on several
hosts need the same `ca.key`.
"""

from __future__ import annotations

import os
from pathlib import Path

from stoker.cli.data_folder import write_private
from stoker.control.auth.authority import Authority, AuthorityUnusable
from stoker.wire.tls_files import TlsFilesUnusable


def is_exposed(found: os.stat_result, user: int) -> bool:
    """Returns whether a key's file is open to others than this user. Where it is root's, a group may read it
    as well: so Kubernetes gives secrets to a pod without root."""
    open_to = 0o037 if found.st_uid == 0 and user != 0 else 0o077
    return bool(found.st_mode & open_to)


class AuthorityFiles:
    """Paths below one folder, and what is read from them and written to them."""

    def __init__(self, folder: Path) -> None:
        self.certificates, self.key = folder / "ca.pem", folder / "ca.key"
        self.server, self.server_key = folder / "control.pem", folder / "control.key"
        self._folder = folder

    def read(self) -> Authority:
        """Raises TlsFilesUnusable."""
        try:
            if is_exposed(self.key.stat(), os.geteuid()):
                raise TlsFilesUnusable(f"{self.key} is a secret and others may read it: chmod 600 {self.key}")
            return Authority.parse(self.key.read_bytes())
        except FileNotFoundError:
            raise TlsFilesUnusable(f"there is no authority in {self._folder}: `stoker ca init`") from None
        except AuthorityUnusable as error:
            raise TlsFilesUnusable(f"{self.key} holds no authority: {error}") from None
        except OSError as error:
            raise TlsFilesUnusable(f"{self.key} cannot be read: {error.strerror}") from None

    def write(self, authority: Authority) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.key, (authority.key_pem + authority.pem).decode())
        write_private(self.certificates, authority.pem.decode())

    def write_server(self, key: bytes, chain: bytes) -> None:
        """Writes the pair. A control that reads them in between refuses them, and keeps the pair that it
        has."""
        write_private(self.server_key, key.decode())
        write_private(self.server, chain.decode())
