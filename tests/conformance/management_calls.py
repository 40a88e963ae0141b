"""The functions of the stock SDK that manage something, each called in the order of a life; its outcome."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.stock_client import Raised, StockClient

DOCUMENT = Path(__file__).parents[2] / "docs" / "management.md"

FUNCTIONS = (
    *("get_user", "update_user_settings", "get_gpus", "get_gpu"),
    *("create_container_registry_auth", "update_container_registry_auth", "delete_container_registry_auth"),
    *("create_template", "create_endpoint", "get_endpoints", "update_endpoint_template"),
    *("create_pod", "get_pods", "get_pod", "stop_pod", "resume_pod", "terminate_pod"),
)
CPU_POD = {"instance_id": "cpu3c-2-4"}
GPU = "NVIDIA GeForce RTX 4090"
NOT_SERVED = "GraphQL is not served here, and nothing was changed"

Until = Callable[[Callable[[], bool]], None]


class Management:
    """`worked` and `refused` have every function that was called, `refused` with the sentence."""

    def __init__(self, client: StockClient) -> None:
        self.client = client
        self.version: str = client.ask("version")
        self.worked: set[str] = set()
        self.refused: dict[str, str] = {}

    def call(self, function: str, **given: Any) -> Any:
        """Returns the answer, or an empty record where the SDK raised: its id is unknown then."""
        try:
            answer = self.client.ask("call", function=function, given=given)
        except Raised as error:
            self.refused[function] = error.text
            return {}
        self.worked.add(function)
        return answer

    def resources(self, image: str) -> None:
        """Everything but pods."""
        self.call("get_user")
        self.call("update_user_settings", pubkey="ssh-ed25519 AAAAC3 me@example.com")
        gpus = self.call("get_gpus")
        assert not gpus or {"id", "name", "memory", "price"} <= gpus[0].keys()
        gpu = self.call("get_gpu", gpu_id=GPU)
        assert not gpu or gpu["availability"] in ("NONE", "LOW", "MEDIUM", "HIGH")

        login = self.call("create_container_registry_auth", name="mine", username="u", password="p")
        given = {"registry_auth_id": login.get("id", "none")}
        self.call("update_container_registry_auth", **given, username="u", password="q")
        self.call("delete_container_registry_auth", **given)

        made = {"image_name": image, "is_serverless": True, "docker_start_cmd": "python -u handler.py"}
        templates = [self.call("create_template", name=name, **made).get("id", "none") for name in ("a", "b")]
        endpoint = self.call(
            "create_endpoint", name="e", template_id=templates[0], gpu_ids="AMPERE_24,-NVIDIA L4"
        )
        listed = self.call("get_endpoints")
        assert not endpoint or endpoint["id"] in [one["id"] for one in listed]
        given = {"endpoint_id": endpoint.get("id", "none"), "template_id": templates[1]}
        self.call("update_endpoint_template", **given)

    def pods(self, image: str, until: Until, **options: Any) -> None:
        """A pod's life; `until` waits."""

        def reads(pod: str, status: str | None) -> bool:
            found = self.call("get_pod", pod_id=pod)
            return (found and found["status"]) == status

        made = self.call("create_pod", name="box", image_name=image, **options)
        pod, there = made.get("id", "none"), bool(made)
        listed = self.call("get_pods")
        self.call("get_pod", pod_id=pod)
        if there:
            assert [one["id"] for one in listed] == [pod]
            until(lambda: reads(pod, "RUNNING"))
        self.call("stop_pod", pod_id=pod)
        if there:
            until(lambda: reads(pod, "EXITED"))
        self.call("resume_pod", pod_id=pod, gpu_count=None)
        if there:
            until(lambda: reads(pod, "RUNNING"))
        self.call("terminate_pod", pod_id=pod)
        if there:
            until(lambda: reads(pod, None))
            assert self.call("get_pods") == []


def table(older: Management, newer: Management) -> str:
    """The rows of the documentation's table."""
    rows = [f"| function | SDK {older.version} | SDK {newer.version} |", "|---|---|---|"]
    for function in FUNCTIONS:
        cells = ["works" if function in one.worked else "raises" for one in (older, newer)]
        rows.append(f"| `{function}` | {cells[0]} | {cells[1]} |")
    return "\n".join(rows)


def documented(rows: str) -> bool:
    return rows in DOCUMENT.read_text()
