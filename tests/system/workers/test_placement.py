"""Processes as an operator starts them, with a stand-in for the driver: workers get the devices they need."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from stoker.agent.host.facts import sees_host_processes
from tests.nvml_stand_in import on_a_host
from tests.system.stack import Stack, queue_endpoint, running, until

FILE = "recording/first_attempt_waits.py"


def sees(stack: Stack, endpoint: str, tmp_path: Path) -> str:
    """The devices that its worker sees, while it has a job."""
    job = stack.run(endpoint, {"go": str(tmp_path / "go"), "runs": str(tmp_path / "runs")})
    pid = stack.first_chunk(endpoint, job)["pid"]
    return psutil.Process(pid).environ()["CUDA_VISIBLE_DEVICES"]


def reason(stack: Stack, endpoint: str, job: str) -> str:
    return str(stack.http.get(f"/{endpoint}/status/{job}").json().get("reason", ""))


@pytest.mark.slow
def test_a_worker_gets_two_gpus_where_it_may_and_others_say_why_they_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_host(tmp_path, monkeypatch, "alike")
    monkeypatch.setenv("STOKER_DATA_CENTER", "EU-RO-1")
    monkeypatch.setenv("STOKER_LABELS", "tier=gold")
    needs = {"gpuCount": 2, "gpuTypeIds": ["Better", "Fake"], "minCudaVersion": "12.8"}
    needs |= {"gpuMemoryMb": 80 * 1024, "dataCenterIds": ["EU-RO-1"]}
    pair = queue_endpoint("pair", FILE, **needs) + 'nodeLabels = {tier = "gold"}\n'
    later = {name: {"workersMin": 0, **fields} for name, fields in LATER.items()}
    others = [queue_endpoint(name, FILE, **fields) for name, fields in later.items()]
    beside = queue_endpoint("beside", FILE, computeType="CPU")
    with running(tmp_path, pair, beside, *others) as stack:
        assert sees(stack, "pair", tmp_path) == "GPU-0,GPU-1"
        assert sees(stack, "beside", tmp_path) == "", "work for CPUs runs beside GPUs that are in use"
        jobs = {name: stack.run(name, {}) for name in later}
        for name, job in jobs.items():
            expected = REASONS[name]
            until(
                lambda name=name, job=job, expected=expected: expected in reason(stack, name, job),
                60,
                expected,
            )
        (tmp_path / "go").touch()


LATER = {
    "newer": {"minCudaVersion": "12.10"},
    "full": {"gpuTypeIds": ["Fake"]},
    "vcpus": {"computeType": "CPU", "vcpuCount": 1024},
    "small": {"gpuMemoryShare": 0.5, "computeType": "GPU"},
}
REASONS = {
    "newer": "no capacity: no node has a free GPU with CUDA 12.10 or later: node ",
    "full": "throttled: no node has a free GPU of Fake: node ",
    "vcpus": "no capacity: no node has 1024 free vCPUs: node ",
    "small": "no node has 50% of a GPU free: node " if sees_host_processes() else "shares no GPU: its agent",
}


@pytest.mark.slow
def test_a_slice_of_a_divided_gpu_is_a_device_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_host(tmp_path, monkeypatch, "mig")
    large = queue_endpoint("large", FILE, gpuTypeIds=["Fake 0 MIG 3g.10gb"])
    whole = queue_endpoint("whole", FILE, gpuTypeIds=["Fake 0"], workersMin=0)
    with running(tmp_path, large, whole) as stack:
        assert sees(stack, "large", tmp_path) == "MIG-0-2"
        job, message = stack.run("whole", {}), "no node has a free GPU of Fake 0: node "
        until(lambda: message in reason(stack, "whole", job), 60, message)
        (tmp_path / "go").touch()
