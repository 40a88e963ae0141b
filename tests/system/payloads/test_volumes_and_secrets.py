"""A volume and a secret that were made over REST reach a real worker, and are gone when they are deleted."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tests.system.stack import HANDLERS, Stack, until

SECRET = "hunter2-of-nobody"
HANDLER = f"local:{HANDLERS / 'access/reads_a_volume_and_a_secret.py'}:handler"


def test_a_worker_reads_its_volume_and_its_secret(tmp_path: Path) -> None:
    stack, root = Stack(tmp_path), tmp_path / "volumes"
    root.mkdir()
    stack.agent_options = ["--volume-root", str(root)]
    try:
        stack.start()
        _story(stack, root)
    finally:
        stack.stop()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def _story(stack: Stack, root: Path) -> None:
    def request(method: str, path: str, body: Any = None) -> Any:
        answer = stack.http.request(method, f"{stack.facts['http']}/v1{path}", json=body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    requested = {"name": "data", "size": 1, "dataCenterId": "EU-RO-1"}
    volume = request("POST", "/networkvolumes", requested)["id"]
    (root / "filled").mkdir(mode=0o770)
    (root / "filled" / "kept").write_text("data" * 25_000)
    (root / "filled").rename(root / volume)  # whoever measures it finds all of it
    request("PUT", "/secrets/db", {"value": SECRET})
    env = {"DATABASE": "pg://{{ STOKER_SECRET_db }}@host"}
    template = request(
        "POST", "/templates", {"name": "t", "imageName": HANDLER, "isServerless": True, "env": env}
    )
    fields = {"templateId": template["id"], "name": "e", "computeType": "CPU", "workersMax": 1}
    endpoint = request("POST", "/endpoints", fields | {"networkVolumeId": volume})["id"]

    record = stack.runsync(endpoint, {})
    login = hashlib.sha256(f"pg://{SECRET}@host".encode()).hexdigest()
    assert record["output"] == {"kept": "data", "login": login}
    logs = stack.http.get(f"/{endpoint}/logs/{record['id']}").text
    assert SECRET not in logs
    assert "logged in with pg://***@host" in logs
    assert (root / volume / "written").read_text() == "by a worker"

    path = f"/networkvolumes/{volume}"
    until(lambda: "usedBytes" in request("GET", path), 60, "a measure of the volume")
    assert request("GET", path)["usedBytes"] >= 100_000
    request("DELETE", f"/endpoints/{endpoint}")
    request("DELETE", path)
    until(lambda: list(root.iterdir()) == [], 60, "an end of the volume's folder")
    request("DELETE", f"/templates/{template['id']}")
    request("DELETE", "/secrets/db")
