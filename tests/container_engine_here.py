"""A dockerd and a podman of the tests' own, on private roots, and an image made of this host's Python."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

import pytest

from stoker.agent.workers.containers import connect as container_connect
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.plan import DOCKER_WITH_CDI

TESTS = Path(__file__).parent
STOCK = TESTS.parent / ".peers" / "python" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
IMAGE = "stoker-test:1"
LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "ensurepip", "site-packages", "tkinter", "data"}
NOT_IMPORTED = {
    *(
        "pip",
        "setuptools",
        "pkg_resources",
        "pygments",
        "wcwidth",
        "uvloop",
        "httptools",
        "prompt_toolkit",
        "rich",
    ),
    *(
        "boto3",
        "botocore",
        "google",
        "opentelemetry",
        "sentry_sdk",
        "dns",
        "runpod_flash",
        "fastapi_cloud_cli",
    ),
    *("pydantic", "pydantic_core", "markdown_it", "rignore", "fastar"),
}
"""Of the stock worker's packages; they would be most of the image."""

PATIENCE_S = 90.0
"""For an engine to start or stop: a busy machine takes long, and one that cannot start says so at once."""
AGAIN = 3
"""How often one that has run here is started at most: dockerd gives its containerd only 15 s to answer."""
LOOPBACK_IS_SAFE = '[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n'


@contextmanager
def dockerd() -> Iterator[str]:
    """Its address. Raises RuntimeError with why there can be none here."""
    with Dockerd() as engine:
        engine.start()
        yield engine.address


@contextmanager
def podman() -> Iterator[str]:
    """The same of podman's service."""
    with Podman() as engine:
        engine.start()
        yield engine.address


class EngineHere:
    """An engine that can be stopped and started again; what it made goes at the end, its folder too."""

    program, package = "", ""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise RuntimeError(f"{self.program} needs root")
        if not shutil.which(self.program):
            raise RuntimeError(f"there is no {self.program} here: apt-get install {self.package}")
        self.root = Path(tempfile.mkdtemp(prefix=f"stoker-{self.program}-"))  # short: sockets lie below it
        self.address = f"unix://{self.root}/s"
        self.running: subprocess.Popen[bytes] | None = None
        self.has_run = False

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def ready(self) -> bool:
        """Whether it answers: a socket may be there before anybody listens."""
        with socket.socket(socket.AF_UNIX) as requests:
            requests.settimeout(PATIENCE_S)
            try:
                requests.connect(f"{self.root}/s")
                requests.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in requests.recv(64)
            except OSError:
                return False

    def start(self) -> None:
        """Again, after a stop. Raises RuntimeError with its last words."""
        for _ in range(AGAIN if self.has_run else 1):
            if self._started():
                self.has_run = True
                return
        last = (self.root / "log").read_text(errors="replace").splitlines()[-1:]
        raise RuntimeError(f"{self.program} does not start here: {' '.join(last)}")

    def _started(self) -> bool:
        with (self.root / "log").open("wb") as log:
            self.running = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,  # conmon leaves a file named oom where it was started
                env=self.environment(),
                start_new_session=True,
            )
        until = time.monotonic() + PATIENCE_S
        while not self.ready():
            if self.running.poll() is not None or time.monotonic() > until:
                self.stop()
                return False
            time.sleep(0.05)
        return True

    def stop(self) -> None:
        if self.running is None:
            return
        self.running.send_signal(signal.SIGTERM)
        try:
            self.running.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.running.kill()
            self.running.wait()
        self.running = None
        (self.root / "s").unlink(missing_ok=True)

    def clean(self) -> None:
        """What it leaves mounted or running."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        until = time.monotonic() + PATIENCE_S
        while self.root.exists():  # what still ends there writes while it is removed
            self.clean()
            shutil.rmtree(self.root, ignore_errors=time.monotonic() < until)
            time.sleep(0.05)


class Dockerd(EngineHere):
    """With a bridge of its own, where one can be made here: another dockerd has another. Nothing leads from
    there to any other network; ports are published by dockerd's own proxy. One that knows CDI looks for it in
    a folder of its own."""

    program, package = "dockerd", "docker.io runc"

    def __init__(self) -> None:
        super().__init__()
        (self.root / "cdi").mkdir()
        cdi = {"features": {"cdi": True}, "cdi-spec-dirs": [f"{self.root}/cdi"]}
        (self.root / "daemon.json").write_text(json.dumps(cdi if self._knows_cdi() else {}))
        self.bridge = f"stk{secrets.token_hex(4)}"
        made = (
            ("link", "add", self.bridge, "type", "bridge"),
            ("address", "add", f"{_free_network()}.1/24", "dev", self.bridge),
            ("link", "set", self.bridge, "up"),
        )
        if not all(_ip(*arguments) for arguments in made):
            _ip("link", "delete", self.bridge)
            self.bridge = "none"

    def command(self) -> list[str]:
        # fmt: off
        return [
            self.program, "--default-ulimit", "nofile=4096:4096", "--data-root", f"{self.root}/data",
            "--exec-root", f"{self.root}/exec", "--pidfile", f"{self.root}/pid", "-H", self.address,
            f"--bridge={self.bridge}", "--iptables=false", "--ip6tables=false",
            "--config-file", f"{self.root}/daemon.json",
        ]
        # fmt: on

    def _knows_cdi(self) -> bool:
        """An older one refuses to start with what it does not know."""
        output = subprocess.run(
            [self.program, "--version"], capture_output=True, text=True, check=True
        ).stdout
        found = re.search(r"version (\d+)", output)
        return found is not None and int(found[1]) >= DOCKER_WITH_CDI

    def clean(self) -> None:
        for left in ("exec/netns/default", "data"):  # dockerd leaves the first one mounted
            subprocess.run(["umount", "-R", f"{self.root}/{left}"], capture_output=True, check=False)
        _ip("link", "delete", self.bridge)


def _ip(*arguments: str) -> bool:
    if not shutil.which("ip"):
        return False
    return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode == 0


def _free_network() -> str:
    """Its first three bytes: two bridges of one network would each get what is the other's."""
    routes = Path("/proc/net/route").read_text().splitlines()[1:]
    taken = {bytes.fromhex(line.split()[1])[::-1] for line in routes}
    networks = [bytes((10, 213, n, 0)) for n in range(256)]
    found = secrets.choice([one for one in networks if one not in taken])
    return ".".join(map(str, found[:3]))


class Podman(EngineHere):
    """With runc, and no init that it was told of: a bare Debian has none where podman looks. Its
    CDI folder is one of its own, in its own mount namespace."""

    program, package = "podman", "podman runc"
    CDI = Path("/var/run/cdi")
    BRIDGE = "cni-podman0"

    outlived = False
    """Whether its containers must find their network in a mount namespace that outlives the service: one of
    its own ends with it, and so does its CDI folder then."""

    def __init__(self) -> None:
        super().__init__()
        (self.root / "registries.conf").write_text(LOOPBACK_IS_SAFE)
        (self.root / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=4096:4096"]\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        )
        for folder in ("cdi", "tmp"):
            (self.root / folder).mkdir()
        if not self.CDI.exists():  # to mount on; another podman may have it mounted, too
            self.CDI.mkdir(exist_ok=True)
            atexit.register(subprocess.run, ["rmdir", "--ignore-fail-on-non-empty", self.CDI], check=False)
        if not Path("/sys/class/net", self.BRIDGE).exists():  # made with the first pod, and left
            atexit.register(_ip, "link", "delete", self.BRIDGE)

    def command(self) -> list[str]:
        private = f'mkdir -p {self.CDI}; mount --bind {self.root}/cdi {self.CDI}; exec "$@"'
        within = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", private, "-"]
        # fmt: off
        return [
            *([] if self.outlived else within), self.program,
            "--root", f"{self.root}/data", "--runroot", f"{self.root}/run", "--tmpdir", f"{self.root}/libpod",
            "--storage-driver", "overlay", "system", "service", "--time=0", self.address,
        ]
        # fmt: on

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CONTAINERS_CONF": f"{self.root}/containers.conf",
            "CONTAINERS_REGISTRIES_CONF": f"{self.root}/registries.conf",
            "TMPDIR": f"{self.root}/tmp",
        }

    def clean(self) -> None:
        for left in ("data/overlay", "data"):  # the first one where it had no mounts of its own
            subprocess.run(["umount", "-R", f"{self.root}/{left}"], capture_output=True, check=False)


def patient(address: str) -> ContainerEngine:
    """To an engine that is there, however long a busy machine lets it think: an agent gives up early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container_connect, "OPEN_S", PATIENCE_S)
        return container_connect.connect([address])


def make_image(address: str) -> None:
    """`python` with its library, tests/handlers in /app, those of this in /here, tests/handlers_protocol
    in /programs, and the stock worker's packages in /packages where they are had."""
    packed = _packed()
    packed.seek(0)
    change = ["-c", "ENV PATH=/usr/bin:/bin", "-c", "WORKDIR /programs"]
    subprocess.run(
        ["docker", "-H", address, "import", *change, "-", IMAGE],
        stdin=packed,
        check=True,
        capture_output=True,
    )


@functools.cache
def _packed() -> IO[bytes]:
    """Once for all engines."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 for as long as this process
    atexit.register(file.close)
    with tarfile.open(fileobj=file, mode="w") as tar:
        add_python(tar, *STOCK.rglob("*.so"))
        tar.add(TESTS / "handlers", "app", filter=_no_caches)
        tar.add(TESTS / "agent" / "workers" / "containers" / "handlers", "here", filter=_no_caches)
        tar.add(TESTS / "handlers_protocol", "programs", filter=_no_caches)
        if STOCK.is_dir():
            tar.add(STOCK, "packages", filter=_imported)
    return file


def add_python(tar: tarfile.TarFile, *objects: Path, kept: Set[str] = frozenset()) -> None:
    """Its program, its library but for LEFT_OUT, and what they and these other objects link to."""
    program, library = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
    tar.add(program)
    tar.add(library, filter=lambda member: _slim(member, LEFT_OUT - kept))
    extensions = [*Path(library, "lib-dynload").glob("*.so"), *objects]
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
    output = subprocess.run(["ldd", *files], capture_output=True, text=True, check=True).stdout
    for word in output.split():
        if word.startswith("/") and ".so" in word and not word.endswith(":"):
            path = os.path.normpath(word)
            if "site-packages" not in path:  # what a package brings along comes with it
                yield path


def _slim(member: tarfile.TarInfo, names: Set[str]) -> tarfile.TarInfo | None:
    """With what is compiled: else each container compiles it again."""
    name = Path(member.name).name
    left_out = name in names or name.startswith("config-") or ".opt-" in name
    return None if left_out else member


def _imported(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if NOT_IMPORTED & set(Path(member.name).parts[1:2]) else member


def _no_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name == "__pycache__" else member
