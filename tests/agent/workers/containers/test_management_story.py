"""What an operator does in a day, over REST alone: endpoints from a folder of the host and from an image,
called, scaled up and down, updated while jobs run; a pod of that image; all deleted, and nothing left."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from docker import APIClient

from tests.container_engine_here import IMAGE
from tests.system.stack import HANDLERS, START_S, Stack, until

pytestmark = pytest.mark.slow

BUILT = "stoker-test-greeter:1"
RECIPE = f"""FROM {IMAGE}
COPY greets.py /app/greets.py
WORKDIR /app
"""
GREETS = """import os
import time


def handler(job):
    time.sleep(job.input.get("seconds", 0))
    return {"greeting": os.environ["GREETING"], "n": job.input["n"]}
"""
SERVE = ["python", "-m", "http.server", "8000", "--directory", "/app"]
CPU = {"computeType": "CPU", "idleTimeout": 1, "scalerType": "REQUEST_COUNT", "scalerValue": 1}


def containers_left(address: str) -> list[Any]:
    engine = APIClient(address)
    try:
        return list(engine.containers(all=True))
    finally:
        engine.close()


def build(address: str) -> None:
    """The image of this story: the tests' own, with one handler more."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, text in (("Dockerfile", RECIPE), ("greets.py", GREETS)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    context.seek(0)
    engine = APIClient(address)
    try:
        lines = list(engine.build(fileobj=context, custom_context=True, tag=BUILT, decode=True, rm=True))
    finally:
        engine.close()
    assert not [line for line in lines if "error" in line], lines


class Managed(Stack):
    """Its agent has an engine; `manage` speaks to /v1."""

    address = ""

    def start_agent(self) -> None:
        command = ["agent", "--control", self.facts["grpc"], "--data-dir", str(self.folder / "agent")]
        self.agent, _ = self._start(command, "agent", {"DOCKER_HOST": self.address})

    def manage(self, method: str, path: str, status: int, body: Any = None) -> Any:
        url = f"{self.facts['http']}/v1{path}"
        answer = self.http.request(method, url, json=body)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def endpoint(self, name: str, template: dict[str, Any], **fields: Any) -> tuple[str, str]:
        """Its id, and its template's."""
        made = self.manage("POST", "/templates", 200, {"name": name, **template})["id"]
        body = {"name": name, "templateId": made, **CPU, **fields}
        return self.manage("POST", "/endpoints", 200, body)["id"], made

    def workers(self, endpoint: str) -> list[dict[str, Any]]:
        return list(self.manage("GET", f"/endpoints/{endpoint}?includeWorkers=true", 200)["workers"])

    def pod(self, pod: str) -> dict[str, Any]:
        return dict(self.manage("GET", f"/pods/{pod}", 200))


@pytest.fixture
def stack(address: str, tmp_path: Path) -> Iterator[Managed]:
    if "podman" in address:
        pytest.skip("the image is built through docker's API; pods on podman have tests of their own")
    made = Managed(tmp_path)
    made.address = address
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_a_day_over_rest(stack: Managed) -> None:
    build(stack.address)
    local, local_template = stack.endpoint(
        "echo", {"imageName": f"local:{HANDLERS / 'outputs/echo.py'}:handler"}
    )
    assert stack.runsync(local, {"n": 1})["output"] == {"n": 1}

    greeter, template = stack.endpoint(
        "greeter",
        {
            "imageName": BUILT,
            "handler": "/app/greets.py:handler",
            "env": {"GREETING": "hello"},
            "isServerless": True,
        },
    )
    assert stack.runsync(greeter, {"n": 1})["output"] == {"greeting": "hello", "n": 1}
    scales_up_and_down(stack, greeter)
    updated_under_load(stack, greeter, template)
    until(
        lambda: not any(map(stack.workers, (local, greeter))), START_S, "no worker"
    )  # a pod's vCPUs are its own
    a_pod_of_the_same_image(stack)
    for endpoint, made in ((local, local_template), (greeter, template)):
        stack.manage("DELETE", f"/endpoints/{endpoint}", 204)
        stack.manage("DELETE", f"/templates/{made}", 204)
        assert stack.http.post(f"/{endpoint}/run", json={"input": {}}).status_code == 404
    until(lambda: containers_left(stack.address) == [], START_S, "an engine without containers")
    assert stack.manage("GET", "/pods", 200) == []
    assert stack.manage("GET", "/endpoints", 200) == []


def scales_up_and_down(stack: Managed, endpoint: str) -> None:
    """0 to 3 to 0. There are jobs until also who is ready last has had one."""
    until(lambda: stack.workers(endpoint) == [], START_S, "no worker after a second of idleness")
    jobs = [stack.run(endpoint, {"n": n, "seconds": 1}) for n in range(6)]
    seen: set[int] = set()
    served: set[str] = set()

    def three() -> bool:
        seen.add(len(stack.workers(endpoint)))
        reported = {job: stack.status(endpoint, job) for job in jobs}
        for job, record in reported.items():
            if record["status"] == "COMPLETED":
                served.add(record["workerId"])
                jobs.remove(job)
        while len(jobs) < 6:
            jobs.append(stack.run(endpoint, {"n": 0, "seconds": 1}))
        return len(served) == 3

    until(three, START_S, "three workers that served")
    ends = [stack.end_of(endpoint, job) for job in jobs]
    assert [end["status"] for end in ends] == ["COMPLETED"] * 6
    assert {end["workerId"] for end in ends} <= served
    until(lambda: stack.workers(endpoint) == [], START_S, "no worker after the last job")
    assert max(seen) == 3


def updated_under_load(stack: Managed, endpoint: str, template: str) -> None:
    """Every job ends well; those after the roll-out see what is new."""
    with ThreadPoolExecutor(4) as callers:
        calls = [
            callers.submit(stack.runsync, endpoint, {"n": n, "seconds": 0.3}, policy={"ttl": 120_000})
            for n in range(24)
        ]
        until(lambda: any(call.done() for call in calls), START_S, "the first of the jobs to end")
        stack.manage("PATCH", f"/templates/{template}", 200, {"env": {"GREETING": "good evening"}})
        ends = [call.result() for call in calls]
    assert [end["status"] for end in ends] == ["COMPLETED"] * 24
    assert all(end.get("retries", 0) == 0 for end in ends)
    assert stack.manage("GET", f"/endpoints/{endpoint}", 200)["version"] == 2

    def new() -> bool:
        return bool(stack.runsync(endpoint, {"n": 0})["output"]["greeting"] == "good evening")

    until(new, START_S, "the new greeting")
    until(
        lambda: not any(one["isStale"] for one in stack.workers(endpoint)),
        START_S,
        "no worker of the old version",
    )


def a_pod_of_the_same_image(stack: Managed) -> None:
    body = {
        "name": "files",
        "imageName": BUILT,
        "computeType": "CPU",
        "dockerStartCmd": SERVE,
        "ports": ["8000/http"],
        "env": {"WHO": "me"},
    }
    pod = stack.manage("POST", "/pods", 201, body)["id"]

    def port() -> int | None:
        found = stack.pod(pod)
        return (found.get("portMappings") or {}).get("8000") if found["desiredStatus"] == "RUNNING" else None

    def serves(at: int | None) -> bool:
        try:
            return (
                at is not None
                and httpx2.get(f"http://127.0.0.1:{at}/greets.py", trust_env=False).text == GREETS
            )
        except httpx2.TransportError:
            return False

    until(lambda: serves(port()), START_S, "the pod's port")
    before = port()
    stack.manage("POST", f"/pods/{pod}/stop", 200)
    until(
        lambda: stack.pod(pod)["desiredStatus"] == "EXITED" and not serves(before),
        START_S,
        "a pod that stopped",
    )
    stack.manage("POST", f"/pods/{pod}/start", 200)
    until(lambda: serves(port()), START_S, "the pod's port again")
    stack.manage("DELETE", f"/pods/{pod}", 204)
    until(lambda: stack.manage("GET", "/pods", 200) == [], START_S, "no pod")
