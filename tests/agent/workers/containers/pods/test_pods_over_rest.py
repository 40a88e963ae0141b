"""A pod's whole life over REST, on a real engine: control, agent and container are each ended on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from docker import APIClient

from tests.container_engine_here import IMAGE
from tests.system.stack import Stack, until

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("address", ["docker"], indirect=True)]

PROGRAM = """
import http.server, json, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
told = {"word": os.environ.get("WORD"), "me": os.environ["RUNPOD_POD_ID"]}
for name, path in (("kept", "/workspace/starts"), ("fresh", "/tmp/starts")):
    with open(path, "a+") as file:
        file.write("x")
        file.seek(0)
        told[name] = len(file.read())
class Tells(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/end":
            os._exit(7)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())
http.server.HTTPServer(("", 8000), Tells).serve_forever()
"""
"""It tells how often it was started, by the pod's volume and by the container's own disk."""

BODY = {
    "imageName": IMAGE,
    "computeType": "CPU",
    "vcpuCount": 1,
    "dockerStartCmd": ["python", "-c", PROGRAM],
    "ports": ["8000/http", "8001/udp"],
    "containerDiskInGb": None,
}


class Pods(Stack):
    """Its agent has an engine."""

    address = ""

    def start_agent(self) -> None:
        command = ["agent", "--control", self.facts["grpc"], "--data-dir", str(self.folder / "agent")]
        self.agent, _ = self._start(command, "agent", {"DOCKER_HOST": self.address})

    def manage(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, f"{self.facts['http']}/v1/pods{path}", json=body)
        assert answer.status_code in (200, 201, 204), f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    def says(self, pod: str) -> dict[str, Any] | None:
        """What its program answers; None while nothing does."""
        port = (self.manage("GET", f"/{pod}")["portMappings"] or {}).get("8000")
        if port is None:
            return None
        try:
            answer = httpx2.get(f"http://127.0.0.1:{port}/", trust_env=False, timeout=5)
            return dict(answer.json())
        except (httpx2.TransportError, ValueError):  # half a page: it is just being stopped
            return None

    def until_it_says(self, pod: str, **wanted: Any) -> None:
        def says_it() -> bool:
            return wanted.items() <= (self.says(pod) or {}).items()

        until(says_it, 60, f"{wanted} from the pod; it is {self.manage('GET', f'/{pod}')}")

    def until_it_reads(self, pod: str, desired: str, status: str) -> dict[str, Any]:
        def reads() -> bool:
            reported = self.manage("GET", f"/{pod}")
            return (reported["desiredStatus"], reported["status"]) == (desired, status)

        until(reads, 60, f"a pod that reads {desired}, {status}")
        found: dict[str, Any] = self.manage("GET", f"/{pod}")
        return found


@pytest.fixture
def stack(address: str, tmp_path: Path) -> Iterator[Pods]:
    made = Pods(tmp_path)
    made.address = address
    try:
        made.start()
        nodes = f"{made.facts['http']}/v1/nodes"
        until(lambda: any(node["state"] == "connected" for node in made.http.get(nodes).json()), 60, "a node")
        yield made
    finally:
        made.stop()


def test_a_pods_whole_life(stack: Pods) -> None:
    pod = stack.manage("POST", "", BODY | {"env": {"WORD": "one"}})["id"]
    stack.until_it_says(pod, kept=1, fresh=1, word="one", me=pod)
    stack.until_it_reads(pod, "RUNNING", "RUNNING")

    stack.manage("POST", f"/{pod}/restart")
    stack.until_it_says(pod, kept=2, fresh=2)

    stack.manage("POST", f"/{pod}/stop")
    stopped = stack.until_it_reads(pod, "EXITED", "EXITED")
    assert stopped["portMappings"] is None
    stack.manage("POST", f"/{pod}/start")
    stack.until_it_says(pod, kept=3, fresh=3)

    stack.manage("POST", f"/{pod}/reset")
    stack.until_it_says(pod, kept=4, fresh=1)
    stack.manage("PATCH", f"/{pod}", {"env": {"WORD": "two"}})
    stack.until_it_says(pod, kept=5, fresh=1, word="two")

    its_neighbours_are_killed(stack, pod)
    it_ends_by_itself(stack, pod)

    stack.manage("DELETE", f"/{pod}")
    until(lambda: left(stack.address) == [], 60, "an engine with nothing left")
    assert stack.manage("GET", "") == []
    until(lambda: stack.manage("GET", "?desiredStatus=TERMINATED") == [], 60, "word that it is gone")


def its_neighbours_are_killed(stack: Pods, pod: str) -> None:
    """The container runs on, and is known again."""
    stack.kill("control")
    stack.start_control()
    stack.until_it_reads(pod, "RUNNING", "RUNNING")
    stack.until_it_says(pod, kept=5, fresh=1)
    stack.kill("agent")
    stack.until_it_reads(pod, "RUNNING", "ERROR")
    stack.start_agent()
    stack.until_it_reads(pod, "RUNNING", "RUNNING")
    stack.until_it_says(pod, kept=5, fresh=1)


def it_ends_by_itself(stack: Pods, pod: str) -> None:
    port = stack.manage("GET", f"/{pod}")["portMappings"]["8000"]
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"http://127.0.0.1:{port}/end", trust_env=False, timeout=60)
    ended = stack.until_it_reads(pod, "EXITED", "EXITED")
    assert ended["exitCode"] == 7
    stack.manage("POST", f"/{pod}/start")
    stack.until_it_says(pod, kept=6, fresh=2)


def left(address: str) -> list[str]:
    """Of containers and volumes, what the engine has."""
    engine = APIClient(address)
    try:
        volumes = engine.volumes()["Volumes"] or []
        return [one["Id"] for one in engine.containers(all=True)] + [one["Name"] for one in volumes]
    finally:
        engine.close()


def test_a_missing_image_is_an_error_that_names_it(stack: Pods) -> None:
    pod = stack.manage("POST", "", BODY | {"imageName": "127.0.0.1:1/none:1"})["id"]
    reported = stack.until_it_reads(pod, "EXITED", "ERROR")
    assert "127.0.0.1:1/none:1" in reported["reason"]
    stack.manage("DELETE", f"/{pod}")
    until(lambda: stack.manage("GET", "?desiredStatus=TERMINATED") == [], 60, "word that it is gone")
