"""Dockerfile.cuda built for real, on a base of this host's Python, off the network; then its agent."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.agent.workers.containers.images.image_builds import (
    LOOKS,
    build,
    make_base,
    skip_unless_it_can_be_built,
)
from tests.container_engine_here import IMAGE
from tests.media_files import tone, write_sound
from tests.system.stack import Stack, fetched, queue_endpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BUILT = "stoker-test-agent:1"


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
    skip_unless_it_can_be_built(address)
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
    make_base(docker, tmp_path / "base", "agent", "models")
    build(docker, tmp_path / "context", "Dockerfile.cuda", "agent,models", BUILT)
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
