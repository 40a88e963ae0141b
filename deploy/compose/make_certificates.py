"""The authority of the platform, and control's certificate: `make_certificates.py DATA PUBLIC NAME…` makes
both by `stoker ca` in the folder `ca` of DATA, and puts the certificate of the authority into PUBLIC.

The authority is made once, and the certificate, which ends after a year, at each start. The files in DATA
belong to the user of control's image.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

USER = 10001


def main(data: Path, public: Path, names: list[str]) -> None:
    authority = data / "ca"
    if not (authority / "ca.key").exists():
        stoker_ca("init", data)
    stoker_ca("issue", data, *names)
    shutil.copyfile(authority / "ca.pem", public / "ca.pem")
    if os.geteuid() == 0:
        for path in (authority, *authority.iterdir()):
            os.chown(path, USER, USER)


def stoker_ca(command: str, data: Path, *names: str) -> None:
    program = [sys.executable, "-P", "-m", "stoker.cli", "ca", command, *names]
    subprocess.run([*program, "--data-dir", str(data)], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
