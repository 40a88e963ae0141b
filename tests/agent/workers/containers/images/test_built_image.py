"""Dockerfile.cuda built for real, on a base of this host's Python, off the network; then its agent."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.agent.workers.containers.images.wheels_here import make_wheels
from tests.container_engine_here import IMAGE, add_python
from tests.media_files import tone, write_sound
from tests.system.stack import Stack, fetched, queue_endpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[5]
BUILDX_FROM = 23
"""The version of docker's command from which on BuildKit is a plug-in."""
BASE, BUILT = "stoker-test-base:1", "stoker-test-agent:1"
LOOKS = """
import os
for top, _, names in os.walk("/"):
    for name in {"server.key", "stack.py", "voice.flac", "Makefile"}.intersection(names):
        print(top, name)
"""
"""What is in the checkout, and not to be in the image."""
HEADERS = Path(sysconfig.get_path("include"), "Python.h")
PIP = "[global]\nno-index = true\nfind-links = /wheels\n"


def make_base(docker: list[str], folder: Path) -> None:
    """Python with venv, a shell, sed, and the requirements of agent and models as wheels."""
    wheels = folder / "wheels"
    wheels.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needs = [*project["dependencies"], *extras["agent"], *extras["models"]]
    objects = make_wheels(wheels, "setuptools", *needs)
    (folder / "pip.conf").write_text(PIP)
    shell, editor, init, compiler = (
        Path(name).resolve()
        for name in ("/bin/sh", "/bin/sed", shutil.which("tini") or "", shutil.which("cc") or "")
    )
    with tarfile.open(folder / "base.tar", "w") as tar:
        add_python(tar, shell, editor, init, compiler, *objects, kept={"ensurepip"})
        tar.add(HEADERS)
        tar.add(init, "usr/bin/tini")
        tar.add(compiler, "usr/bin/cc")  # without cc1: nothing is compiled on a CPU
        tar.add(shell, "bin/sh")
        tar.add(editor, "bin/sed")
        tar.add(wheels, "wheels")
        tar.add(folder / "pip.conf", "etc/pip.conf")
    change = ["-c", "ENV PATH=/usr/bin:/bin"]
    command = [*docker, "import", *change, str(folder / "base.tar"), BASE]
    subprocess.run(command, check=True, capture_output=True)


def builder() -> str:
    """Returns a docker command that has BuildKit: as a plug-in or, before 23, built in. Skips without one."""
    for command in filter(shutil.which, ("docker", "/usr/bin/docker")):
        version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
        plugin = subprocess.run([command, "buildx", "version"], check=False, capture_output=True)
        if plugin.returncode == 0 or int(version.split()[2].partition(".")[0]) < BUILDX_FROM:
            return command
    pytest.skip("the recipe mounts caches, for which docker's command needs BuildKit (docker-buildx)")


def build(docker: list[str], context: Path) -> None:
    """Of the files that are in version control, as they are now."""
    listing = ["git", "-C", ROOT, "ls-files", "-z"]
    output = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    for name in filter(None, output.split("\0")):
        if (ROOT / name).exists():
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, context / name, follow_symlinks=False)
    (context / "server.key").write_text("of the operator's")
    recipe = str(context / "Dockerfile.cuda")
    options = [
        "--network",
        "none",
        "--build-arg",
        f"BASE={BASE}",
        "--build-arg",
        "EXTRAS=agent,models",
        "-f",
        recipe,
        "-t",
        BUILT,
    ]
    command = [builder(), *docker[1:], "build", *options, str(context)]
    buildkit = {**os.environ, "DOCKER_BUILDKIT": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=buildkit)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


class Built(Stack):
    """Its agent is the image's."""

    address = ""

    def start_agent(self) -> None:
        data, engine = f"{self.folder}/agent", self.address.removeprefix("unix://")
        Path(data).mkdir()
        # fmt: off
        command = [
            "docker", "-H", self.address, "run", "--rm", "--network", "host", "--pid", "host",
            "-v", f"{data}:/var/lib/stoker", "-v", f"{engine}:/var/run/docker.sock",
            "-e", f"STOKER_JOIN_TOKEN={self.join}", "-e", f"STOKER_HOST_DATA_DIR={data}",
            BUILT, "--control", self.facts["grpc"],
        ]
        # fmt: on
        with open(self.folder / "agent.log", "ab") as log:
            self.agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


@pytest.fixture
def stack(address: str, tmp_path: Path) -> Iterator[Built]:
    if "podman" in address:
        pytest.skip("the image is built by docker's command")
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("which files belong to the image is known by git")
    if not HEADERS.exists():
        pytest.skip(f"the image's base is made of this host's Python, which has no {HEADERS} (python3-dev)")
    if not shutil.which("cc"):
        pytest.skip("the image has the C compiler of this host, which has none (gcc)")
    if not shutil.which("tini"):
        pytest.skip("the image's first process is tini, which is not on this host (package tini)")
    endpoint = queue_endpoint("echo", "", imageName=IMAGE, handler="/app/outputs/echo.py:handler")
    made = Built(tmp_path, endpoint, hosted=("text-to-image", "talking-video"))
    made.address = address
    try:
        made.start_control()
        yield made
    finally:
        made.stop()


def test_the_agents_image(stack: Built, tmp_path: Path) -> None:
    docker = ["docker", "-H", stack.address]
    (tmp_path / "base").mkdir()
    make_base(docker, tmp_path / "base")
    build(docker, tmp_path / "context")
    looks = ["run", "--rm", "--entrypoint", "python", BUILT, "-c", LOOKS]
    assert subprocess.run([*docker, *looks], check=True, capture_output=True).stdout == b""
    shows_compiler_and_init(docker)
    stack.start_agent()
    record = stack.runsync("echo", {"n": 1})
    assert (record["status"], record["output"]) == ("COMPLETED", {"n": 1}), stack.log("agent")
    image = made(stack, "text-to-image", {"prompt": "a fox", "width": 256, "height": 256, "seed": 1})
    assert Image.open(io.BytesIO(fetched(image["image_url"]).content)).size == (256, 256)
    audio = tmp_path / "voice.wav"
    write_sound(audio, tone(4_800, 16_000), 16_000)
    requested = {
        "prompt": "a talk",
        "image": image["image_url"],
        "audio": uploaded(stack, audio),
        "size": "480p",
    }
    video = fetched(made(stack, "talking-video", requested)["video_url"]).content
    assert video[4:8] == b"ftyp"


def shows_compiler_and_init(docker: list[str]) -> None:
    """A C compiler runs in the image; its first process is tini; its labels say what the image is."""

    def printed(program: str) -> str:
        command = [*docker, "run", "--rm", "--entrypoint", program, BUILT, "--version"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    here = subprocess.run(["cc", "--version"], check=True, capture_output=True, text=True).stdout
    assert printed("cc").splitlines()[0] == here.splitlines()[0]
    assert printed("tini").startswith("tini version ")
    inspect = [*docker, "image", "inspect", BUILT]
    (image,) = json.loads(subprocess.run(inspect, check=True, capture_output=True).stdout)
    assert image["Config"]["Entrypoint"][:5] == ["tini", "-s", "--", "stoker", "agent"]
    labels = {
        name.removeprefix("org.opencontainers.image."): text
        for name, text in image["Config"]["Labels"].items()
    }
    assert (labels["title"], labels["licenses"]) == ("stoker-agent", "Apache-2.0")
    assert labels["description"]


def made(stack: Built, model: str, requested: dict[str, Any]) -> dict[str, Any]:
    """By the hosted model, in the image, on the CPU."""
    record = stack.end_of(model, stack.run(model, requested))
    assert record["status"] == "COMPLETED", (record, stack.log("agent"))
    return dict(record["output"])


def uploaded(stack: Built, file: Path) -> str:
    answer = stack.http.post(f"/talking-video/files?name={file.name}", content=file.read_bytes())
    return str(answer.json()["url"])
