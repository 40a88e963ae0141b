"""Handlers reach a host that does not have their folder, by the digest of their files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.system.stack import START_S, Stack, queue_endpoint, until

HANDLER = """
import os
from words import GREETING
def handler(job):
    data = open(os.path.join(os.path.dirname(__file__), "data", "name.txt")).read()
    return {"says": f"{GREETING} {data}", "pid": os.getpid(), "at": os.path.dirname(__file__)}
"""


class AnotherHost(Stack):
    """Its agent sees an empty folder where control has the handlers."""

    def start_agent(self) -> None:
        hidden = f'mount -t tmpfs none "{self.folder}/code" && exec "$@"'
        command = ["agent", "--control", self.facts["grpc"], "--data-dir", str(self.folder / "agent")]
        environment = {**os.environ, "STOKER_JOIN_TOKEN": self.join}
        with open(self.folder / "agent.log", "ab") as log:
            self.agent = subprocess.Popen(
                [
                    "unshare",
                    "--mount",
                    "sh",
                    "-c",
                    hidden,
                    "-",
                    sys.executable,
                    "-P",
                    "-m",
                    "stoker.cli",
                    *command,
                ],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


def write(code: Path, greeting: str) -> None:
    (code / "words.py").write_text(f"GREETING = {greeting!r}\n")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[AnotherHost]:
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace can be made here: that needs root")
    code = tmp_path / "code"
    (code / "data").mkdir(parents=True)
    (code / "echo.py").write_text(HANDLER)
    (code / "data" / "name.txt").write_text("world")
    write(code, "hello")
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "echo.py").write_text(HANDLER)
    with (tmp_path / "large" / "model.bin").open("wb") as file:
        file.truncate(1 << 30)
    endpoint = queue_endpoint("echo", "", imageName=f"local:{code}/echo.py:handler")
    made = AnotherHost(tmp_path, endpoint)
    made.config.write_text(f'local_roots = ["{code}"]\n{endpoint}')
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.slow
def test_a_folder_that_the_node_does_not_have(stack: AnotherHost) -> None:
    first = stack.runsync("echo", {})
    assert (first["status"], first["output"]["says"]) == ("COMPLETED", "hello world"), first
    assert first["output"]["at"].startswith(str(stack.folder / "agent" / "sources"))

    write(stack.folder / "code", "goodbye")
    worker = psutil.Process(first["output"]["pid"])
    worker.send_signal(signal.SIGKILL)
    again = stack.runsync("echo", {})["output"]
    assert (again["says"], again["pid"] != worker.pid) == ("hello world", True), "the version's own files"

    changed = stack.config.read_text().replace('id = "echo"', 'id = "echo"\nenv = { NEW = "yes" }')
    stack.config.write_text(changed)
    stack.kill("control")
    stack.start_control()
    until(lambda: stack.runsync("echo", {})["output"]["says"] == "goodbye world", START_S, "the new files")


def test_a_folder_that_is_too_large_says_so_to_all_who_wait(stack: AnotherHost) -> None:
    large = stack.folder / "large"
    config = stack.config.read_text().replace(str(stack.folder / "code"), str(large))
    stack.agent.send_signal(signal.SIGTERM)
    stack.agent.wait()
    stack.kill("control")
    large.rename(stack.folder / "code" / "large")
    stack.config.write_text(config.replace(str(large), str(stack.folder / "code" / "large")))
    stack.start_control()
    stack.start_agent()
    job = stack.run("echo", {})
    reason = lambda: str(stack.status("echo", job).get("reason"))  # noqa: E731
    until(
        lambda: "code/large is not on this node, and control does not send it" in reason(),
        START_S,
        "why",
        reason,
    )
    assert "over 8 MiB of files, model.bin among them" in reason()
