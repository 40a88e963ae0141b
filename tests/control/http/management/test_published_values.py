"""Every value that the interface gives as an example is accepted, and told again as it was given."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.control.resources.catalog import CUDA_VERSIONS, DATA_CENTERS, ENDPOINT_CPU_FLAVORS, GPU_TYPES
from tests.control.http.management.managed import Managed

IMAGE = "runpod/pytorch:2.1.0-py3.10-cuda11.8.0-devel-ubuntu22.04"

TEMPLATE: list[dict[str, Any]] = [
    {"category": "NVIDIA"},
    {"category": "AMD"},
    {"category": "CPU"},
    {"containerDiskInGb": 50},
    {"dockerEntrypoint": []},
    {"dockerEntrypoint": ["/bin/sh", "-c"]},
    {"dockerStartCmd": []},
    {"dockerStartCmd": ["python", "-u", "handler.py"]},
    {"env": {}},
    {"env": {"ENV_VAR": "value"}},
    {"imageName": IMAGE},
    {"imageName": "nginx"},
    {"imageName": "ghcr.io/example/worker@sha256:" + "0" * 64},
    {"isPublic": False},
    {"isPublic": True},
    {"isServerless": True},
    {"name": "my template"},
    {"ports": ["8888/http", "22/tcp"]},
    {"ports": []},
    {"readme": ""},
    {"readme": "# How to\n"},
    {"volumeInGb": 20},
    {"volumeInGb": 0},
    {"volumeMountPath": "/workspace"},
]

ENDPOINT: list[dict[str, Any]] = [
    {"allowedCudaVersions": list(CUDA_VERSIONS)},
    {"minCudaVersion": "12.8"},
    {"computeType": "GPU"},
    {"computeType": "CPU"},
    {"computeType": "CPU", "cpuFlavorIds": list(ENDPOINT_CPU_FLAVORS), "vcpuCount": 2},
    {"computeType": "CPU", "instanceIds": ["cpu3c-8-16"]},
    {"dataCenterIds": ["EU-RO-1"]},
    {"dataCenterIds": list(DATA_CENTERS)},
    {"executionTimeoutMs": 600_000},
    {"flashboot": True},
    {"flashboot": False},
    {"gpuCount": 1},
    {"gpuTypeIds": list(GPU_TYPES)},
    {"idleTimeout": 1},
    {"idleTimeout": 5},
    {"idleTimeout": 3600},
    {"name": "my endpoint"},
    {"name": "n" * 191},
    {"scalerType": "QUEUE_DELAY", "scalerValue": 4},
    {"scalerType": "REQUEST_COUNT", "scalerValue": 1},
    {"type": "QUEUE"},
    {"type": "LOAD_BALANCER"},
    {"workersMax": 0},
    {"workersMax": 3, "workersMin": 0},
]


def _named(fields: dict[str, Any]) -> str:
    return ",".join(fields)


def test_the_published_names_are_complete() -> None:
    assert (len(set(GPU_TYPES)), len(set(DATA_CENTERS)), len(set(CUDA_VERSIONS))) == (49, 26, 12)


@pytest.mark.parametrize("values", TEMPLATE, ids=_named)
async def test_of_a_template(api: Managed, values: dict[str, Any]) -> None:
    made = await api.made("/templates", **{"name": "t", "imageName": IMAGE, **values})
    assert {name: made[name] for name in values} == values


async def test_ports_as_one_text(api: Managed) -> None:
    made = await api.made("/templates", name="t", imageName=IMAGE, ports="8888/http,22/tcp")
    assert made["ports"] == ["8888/http", "22/tcp"]


@pytest.mark.parametrize("values", ENDPOINT, ids=_named)
async def test_of_an_endpoint(api: Managed, values: dict[str, Any]) -> None:
    template = await api.made("/templates", name="t", imageName=IMAGE)
    made = await api.made("/endpoints", templateId=template["id"], **values)
    assert {name: made[name] for name in values} == values


async def test_each_name_by_itself(api: Managed) -> None:
    template = await api.made("/templates", name="t", imageName=IMAGE)
    made = await api.made("/endpoints", templateId=template["id"])
    for field, names in [("minCudaVersion", CUDA_VERSIONS), ("dataCenterIds", DATA_CENTERS)]:
        for name in names:
            values = {field: name if field == "minCudaVersion" else [name]}
            changed = await api.http.patch(f"/endpoints/{made['id']}", json=values)
            assert (changed.status_code, changed.json()[field]) == (200, values[field])


async def test_zero_is_the_default_of_the_execution_timeout(api: Managed) -> None:
    template = await api.made("/templates", name="t", imageName=IMAGE)
    made = await api.made("/endpoints", templateId=template["id"], executionTimeoutMs=0)
    assert made["executionTimeoutMs"] == 600_000
