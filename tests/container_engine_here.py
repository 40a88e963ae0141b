"""A dockerd of the tests' own, on a private root and socket, and an image made of this host's Python."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parent
STOCK = TESTS.parent / ".peers" / "python" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
IMAGE = "stoker-test:1"
LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "ensurepip",
    "site-packages",
    "__pycache__",
    "tkinter",
    "data",
}
NOT_IMPORTED = {"pip", "setuptools", "pygments", "wcwidth", "uvloop", "__pycache__"}
PATIENCE_S = 20.0


@contextmanager
def dockerd() -> Iterator[str]:
    """Its address. Raises RuntimeError with why there can be none here."""
    if os.geteuid() != 0:
        raise RuntimeError("dockerd needs root")
    if not (program := shutil.which("dockerd")):
        raise RuntimeError("there is no dockerd here: apt-get install docker.io runc")
    root = Path(tempfile.mkdtemp(prefix="stoker-dockerd-"))  # short: sockets lie below it
    address = f"unix://{root}/d.sock"
    # fmt: off
    command = [
        program, "--default-ulimit", "nofile=4096:4096", "--data-root", f"{root}/data", "--exec-root",
        f"{root}/exec", "--pidfile", f"{root}/pid", "-H", address, "--bridge=none", "--iptables=false",
        "--ip6tables=false",
    ]
    # fmt: on
    with (root / "log").open("wb") as log:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_for(root, running)
        yield address
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        for left in ("exec/netns/default", "data"):  # dockerd leaves the first one mounted
            subprocess.run(["umount", "-R", f"{root}/{left}"], capture_output=True, check=False)
        shutil.rmtree(root)


def _wait_for(root: Path, running: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not (root / "d.sock").is_socket() or b"API listen" not in (root / "log").read_bytes():
        if running.poll() is not None or time.monotonic() > until:
            last = (root / "log").read_text(errors="replace").splitlines()[-1:]
            raise RuntimeError(f"dockerd does not start here: {' '.join(last)}")
        time.sleep(0.05)


def make_image(address: str) -> None:
    """`python` with its library, tests/handlers in /app, those of this in /here, tests/handlers_protocol
    in /programs, and the stock worker's packages in /packages where they are had."""
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            _add_python(tar)
            tar.add(TESTS / "handlers", "app", filter=_no_caches)
            tar.add(TESTS / "agent_containers" / "handlers", "here", filter=_no_caches)
            tar.add(TESTS / "handlers_protocol", "programs", filter=_no_caches)
            if STOCK.is_dir():
                tar.add(STOCK, "packages", filter=_no_caches)
        file.seek(0)
        change = ["-c", "ENV PATH=/usr/bin:/bin", "-c", "WORKDIR /programs"]
        subprocess.run(
            ["docker", "-H", address, "import", *change, "-", IMAGE],
            stdin=file,
            check=True,
            capture_output=True,
        )


def _add_python(tar: tarfile.TarFile) -> None:
    program, library = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
    tar.add(program)
    tar.add(library, filter=_slim)
    extensions = [*Path(library, "lib-dynload").glob("*.so"), *STOCK.rglob("*.so")]
    for path in sorted(set(_libraries(program, *map(str, extensions)))):
        tar.add(os.path.realpath(path), path)
    for name in ("usr/bin/python", "usr/bin/python3"):
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, program
        tar.addfile(link)
    for name in ("tmp", "bin"):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder)


def _libraries(*files: str) -> Iterator[str]:
    told = subprocess.run(["ldd", *files], capture_output=True, text=True, check=True).stdout
    for word in told.split():
        if word.startswith("/") and ".so" in word and not word.endswith(":"):
            yield word


def _slim(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if LEFT_OUT & set(Path(member.name).parts[-1:]) else member


def _no_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if NOT_IMPORTED & set(Path(member.name).parts[:3]) else member
