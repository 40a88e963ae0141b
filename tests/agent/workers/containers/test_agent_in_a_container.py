"""An agent that is in a container itself: it starts siblings, and says when the host's folder is another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.container_engine_here import IMAGE
from tests.system.stack import SOURCE, Stack, queue_endpoint

pytestmark = pytest.mark.slow

INSIDE = "/var/lib/stoker"
ROOT = SOURCE.parent


class SpawnerByImage(Stack):
    """Its agent runs in an image's root, with this host's libraries, Python and sources shown to it."""

    address = ""
    host_folder = ""

    def agent_command(self) -> list[str]:
        shown = ["/usr", "/lib", "/lib64", sys.base_prefix, sys.prefix, str(ROOT)]
        binds = [f"{path}:{path}:ro" for path in dict.fromkeys(shown) if os.path.exists(path)]
        engine = self.address.removeprefix("unix://")
        binds += [f"{self.folder}/agent:{INSIDE}", f"{engine}:/var/run/docker.sock"]
        environment = [
            f"PYTHONPATH={SOURCE}",
            f"STOKER_JOIN_TOKEN={self.join}",
            f"STOKER_HOST_DATA_DIR={self.host_folder or f'{self.folder}/agent'}",
        ]
        # fmt: off
        return [
            "docker", "-H", self.address, "run", "--rm", "--network", "host", "--pid", "host", "--init",
            *(word for bind in binds for word in ("-v", bind)),
            *(word for line in environment for word in ("-e", line)),
            IMAGE, sys.executable, "-P", "-m", "stoker.cli",
            "agent", "--control", self.facts["grpc"], "--data-dir", INSIDE,
        ]
        # fmt: on

    def start_agent(self) -> None:
        """Ready is it when the first job is done."""
        (self.folder / "agent").mkdir(exist_ok=True)
        with open(self.folder / "agent.log", "ab") as log:
            self.agent = subprocess.Popen(
                self.agent_command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


@pytest.fixture
def stack(address: str, tmp_path: Path) -> Iterator[SpawnerByImage]:
    if "podman" in address:
        pytest.skip("the agent's own container is started by docker's command")
    endpoint = queue_endpoint("echo", "", imageName=IMAGE, handler="/app/outputs/echo.py:handler")
    made = SpawnerByImage(tmp_path, endpoint)
    made.address = address
    try:
        made.start_control()
        yield made
    finally:
        made.stop()


def test_it_starts_siblings(stack: SpawnerByImage) -> None:
    stack.start_agent()
    record = stack.runsync("echo", {"n": 1})
    assert (record["status"], record["output"]) == ("COMPLETED", {"n": 1}), stack.log("agent")


def test_a_wrong_path_of_its_folder_is_an_error_at_the_start(stack: SpawnerByImage, tmp_path: Path) -> None:
    (tmp_path / "another").mkdir()
    stack.host_folder = f"{tmp_path}/another"
    stack.start_agent()
    assert stack.agent.wait(60) != 0
    log = stack.log("agent")
    assert "STOKER_HOST_DATA_DIR is wrong" in log
    assert f"{tmp_path}/another on the engine's host is not the agent's {INSIDE}" in " ".join(log.split())
