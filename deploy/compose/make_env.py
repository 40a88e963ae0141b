"""The secrets of a platform: writes .env beside this file, which compose reads, once; with mode 0600."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path


def main(folder: Path) -> None:
    values = {
        "STOKER_API_KEY": f"sk_{secrets.token_hex(6)}_{secrets.token_hex(32)}",
        "STOKER_JOIN_TOKEN": f"jt_{secrets.token_hex(6)}_{secrets.token_hex(32)}",
        "STOKER_SECRET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "POSTGRES_PASSWORD": secrets.token_hex(24),
        "S3_SECRET": secrets.token_hex(24),
    }
    path = folder / ".env"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        sys.exit(f"{path} is there already: its secrets are those of the platform that was started with it")
    with open(fd, "w", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in values.items())
    print(f"{path} is written; STOKER_API_KEY in it is the first key")


if __name__ == "__main__":
    main(Path(__file__).resolve().parent)
