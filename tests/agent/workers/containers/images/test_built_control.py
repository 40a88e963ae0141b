"""Dockerfile.control built for real, off the network; then its control, without root, all but read-only."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from stoker.cli.control.s3_settings import to_environment
from stoker.outbound.s3.local_server import LocalS3
from tests.agent.workers.containers.images.image_builds import (
    LOOKS,
    build,
    make_base,
    skip_unless_it_can_be_built,
)
from tests.certificates import make_certificate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
BUILT, NAME = "stoker-test-control:1", "stoker-test-control"
USER = 10001


class Control:
    """The container, on this host's network. `store`: the object store's variables."""

    def __init__(self, docker: list[str], files: Path, store: Mapping[str, str]) -> None:
        self._docker = docker
        # fmt: off
        command = [
            *docker, "run", "--rm", "--name", NAME, "--network", "host", "--read-only", "--tmpfs", "/tmp",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "-v", f"{files}:/etc/stoker:ro",
            *(word for name, value in store.items() for word in ("-e", f"{name}={value}")),
            BUILT, "--tls-cert", "/etc/stoker/cert.pem", "--tls-key", "/etc/stoker/key.pem",
            "--port", "0", "--grpc-port", "0",
        ]
        # fmt: on
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def ready(self) -> dict[str, str]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def runs(self, *command: str) -> str:
        ran = subprocess.run(
            [*self._docker, "exec", NAME, *command], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def stop(self) -> int:
        subprocess.run([*self._docker, "stop", NAME], capture_output=True, check=False)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait()


def built(address: str, tmp_path: Path) -> tuple[list[str], Path]:
    """Builds the image. Returns the engine's command, and a folder with a certificate for its user."""
    skip_unless_it_can_be_built(address)
    docker = ["docker", "-H", address]
    make_base(docker, tmp_path / "base", "control")
    build(docker, tmp_path / "context", "Dockerfile.control", "control", BUILT)
    looks = [*docker, "run", "--rm", "--user", "0", "--entrypoint", "python", BUILT, "-c", LOOKS]
    assert subprocess.run(looks, check=True, capture_output=True).stdout == b""
    files = tmp_path / "files"
    files.mkdir()
    make_certificate(files)
    for path in files.iterdir():
        os.chown(path, USER, USER)
    return docker, files


@pytest_asyncio.fixture
async def control(address: str, tmp_path: Path) -> AsyncIterator[Control]:
    """It uses a store of this host: the wheels of the base lack the program of the embedded one."""
    docker, files = built(address, tmp_path)
    (tmp_path / "store").mkdir()
    async with LocalS3(tmp_path / "store") as store:
        variables = {name: value for name, value in to_environment(store.config).items() if value}
        variables.pop("STOKER_S3_FOLDER")
        made = Control(docker, files, variables)
        yield made
        made.stop()


def test_controls_image(control: Control, tmp_path: Path) -> None:
    facts = control.ready()
    _, _, port = facts["http"].rpartition(":")
    context = ssl.create_default_context(cafile=tmp_path / "files" / "cert.pem")
    with httpx2.Client(base_url=f"https://127.0.0.1:{port}", verify=context, trust_env=False) as http:
        assert http.get("/ready", timeout=60).json()["status"] == "ready"
        made = control.runs("stoker", "key", "create", "--name", "first")
        key = next(word for word in made.split() if word.startswith("sk_"))
        answer = http.get("/v1/endpoints", headers={"Authorization": f"Bearer {key}"}, timeout=60)
        assert (answer.status_code, answer.json()) == (200, [])
    assert control.runs("python", "-c", "import os; print(os.getuid(), os.getgid())") == f"{USER} {USER}\n"
    assert control.stop() == 0
