"""The package as users get it: `package.py` makes the sdist, and the wheel of it, in dist/, looks at what
they hold, installs the wheel into empty environments, and lets one call the control that another starts.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("agent", "cli", "client", "control", "models", "outbound", "page", "testing", "wire", "worker")
HOLDS = (
    "stoker/py.typed",
    "stoker/weights.lock",
    "stoker/control/store/database/statements.sql",
    "stoker/wire/agent_pb2.py",
    "stoker/page/app.py",
    "stoker/models/talking_video/portrait/trained/visemes.safetensors",
    *(
        f"stoker/models/text_to_image/mini/trained/{name}.safetensors"
        for name in ("transformer", "t5", "vae")
    ),
)
REFUSED = re.compile(r"(^|/)(tests?|training|bench|docs|examples|__pycache__|\.stoker)/|\.(pyc|db|env)$")
CALL = """
import sys
from stoker.client import Client
with Client(sys.argv[1], sys.argv[2]) as stoker:
    print([one["id"] for one in stoker.manage.endpoints.list()])
"""


class Wrong(Exception):
    """The message says what is wrong with the package."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="stoker-package-") as folder:
        work = Path(folder)
        sdist, wheel = build(tracked(work / "source"))
        check_names(names_of(sdist), f"{sdist.name.removesuffix('.tar.gz')}/src/")
        check_names(names_of(wheel), "")
        try_out(wheel, work)
    print(f"{wheel.name} and {sdist.name} are in dist/, and were tried in empty environments")


def tracked(folder: Path) -> Path:
    """Copies the files of the repository alone: the build would take up what lies about."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    subprocess.run(
        ["tar", "--create", "--null", "--files-from=-", "--file", f"{folder}.tar"],
        cwd=ROOT,
        input=listed.stdout,
        check=True,
    )
    with tarfile.open(f"{folder}.tar") as made:
        made.extractall(folder, filter="tar")
    return folder


def build(source: Path) -> tuple[Path, Path]:
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    for old in dist.glob("stoker-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", str(dist), str(source))
    return next(dist.glob("*.tar.gz")), next(dist.glob("*.whl"))


def names_of(archive: Path) -> list[str]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.namelist()
    with tarfile.open(archive) as sdist:
        return sdist.getnames()


def check_names(names: Collection[str], below: str) -> None:
    """Raises Wrong where a file is missing, or should not be there."""
    missing = [name for name in HOLDS if below + name not in names]
    if missing:
        raise Wrong(f"the package lacks {', '.join(missing)}")
    found = {name.removeprefix(below).split("/")[1] for name in names if name.startswith(f"{below}stoker/")}
    parts = {name for name in found if "." not in name}
    if parts != {*PARTS}:
        raise Wrong(f"the package has other folders than its parts: {', '.join(sorted(parts ^ {*PARTS}))}")
    refused = [name for name in names if REFUSED.search(name)]
    if refused:
        raise Wrong(f"the package has what is not for users: {', '.join(refused[:5])}")


def try_out(wheel: Path, work: Path) -> None:
    """Installs the base, and control, into environments of their own, and calls one with the other."""
    base = installed(work / "base", str(wheel))
    for arguments in (["--version"], ["--help"], ["job", "--help"]):
        run(str(base / "stoker"), *arguments)
    refused = subprocess.run([base / "stoker", "control"], capture_output=True, text=True, check=False)
    if refused.returncode != 1 or "pip install" not in refused.stderr:
        raise Wrong(f"the base install's `stoker control` should name the extra, and says: {refused.stderr}")
    control = installed(work / "control", f"{wheel}[control]")
    key = f"sk_{secrets.token_hex(6)}_{secrets.token_hex(24)}"
    command = [control / "stoker", "control", "--port", "0", "--grpc-port", "0", "--data-dir", work / "data"]
    environ = {**os.environ, "STOKER_API_KEY": key}
    with subprocess.Popen(command, cwd=work, env=environ, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise Wrong("the installed control ended before it was ready")
            called = run(str(base / "python"), "-c", CALL, json.loads(line)["http"], key)
            if called.strip() != "[]":
                raise Wrong(f"a client's call of the installed control answered {called}")
        finally:
            process.terminate()
    if process.returncode != 0:
        raise Wrong(f"the installed control ended with {process.returncode}")


def installed(folder: Path, what: str) -> Path:
    """Returns the folder of programs of a new environment with the package and what it needs."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    quiet = ["-q", "--disable-pip-version-check", "--no-compile", "--retries", "10", "--timeout", "60"]
    run(str(programs / "pip"), "install", *quiet, "-c", str(ROOT / "constraints.txt"), what)
    return programs


def run(*command: str) -> str:
    """Returns the output. Raises Wrong with it where the command fails."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise Wrong(f"{' '.join(command)} failed:\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}")
    return ended.stdout


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"package: {wrong}")
