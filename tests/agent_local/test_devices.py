"""GPUs through NVML, against a library built here; and the processor where there is no driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.devices import NvmlSampler
from stoker.agent.processor import Processor
from stoker.wire.messages import Device, DeviceSample

GIB = 1 << 30

LOOK = """
import asyncio, dataclasses, json, os, sys
from stoker.agent.devices import DevicesUnknown, NvmlSampler
try:
    sampler = NvmlSampler(deadline_s=0.3, start_deadline_s=0.3)
except DevicesUnknown as error:
    print(json.dumps(str(error)))
    sys.exit()
os.putenv("FAKE_NVML_ARMED", "1")
async def twice():
    return [await sampler.sample(), await sampler.sample()]
first, second = asyncio.run(twice())
told = [list(map(dataclasses.asdict, things)) for things in (sampler.inventory(), first, second)]
print(json.dumps(told))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build a stand-in for the NVIDIA library")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parent / "fake_nvml.c"
    command = [compiler, "-shared", "-fPIC", "-O", "-o", str(folder / "libnvidia-ml.so.1"), str(source)]
    subprocess.run(command, check=True)
    return folder


def look(library: Path, host: str) -> Any:
    """What a fresh process tells of that host: the loader's path is read when a process starts."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML": host}
    # The process must end although a thread of it hangs in a driver call.
    command = [sys.executable, "-P", "-c", LOOK]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(run.stdout)


def devices(told: Any) -> tuple[list[Device], list[DeviceSample], list[DeviceSample]]:
    inventory, first, second = told
    return (
        [Device(**one) for one in inventory],
        [DeviceSample(**one) for one in first],
        [DeviceSample(**one) for one in second],
    )


def gpu(n: int) -> Device:
    return Device(f"GPU-{n}", "gpu", f"Fake {n}", n, None, 80 * GIB, "999.1")


def sample(n: int) -> DeviceSample:
    return DeviceSample(f"GPU-{n}", 1000 * (n + 1), 40 + n, 50 + n, (300500 + n) / 1000, n)


def test_two_gpus_that_tell_everything(library: Path) -> None:
    inventory, first, second = devices(look(library, "two"))
    assert inventory == [gpu(0), gpu(1)]
    assert first == second == [sample(0), sample(1)]


def test_what_the_driver_does_not_tell_is_unknown_not_zero(library: Path) -> None:
    inventory, first, _ = devices(look(library, "silent"))
    assert inventory == [Device("GPU-0", "gpu", "Fake 0")]
    assert first == [DeviceSample("GPU-0")]


def test_a_call_that_hangs_costs_that_gpus_samples_only(library: Path) -> None:
    inventory, first, second = devices(look(library, "hangs"))
    assert inventory == [gpu(0), gpu(1)]
    assert first == second == [sample(1)]


def test_the_parts_of_a_divided_gpu(library: Path) -> None:
    inventory, first, _ = devices(look(library, "mig"))
    assert [(one.uuid, one.kind, one.parent) for one in inventory] == [
        ("MIG-0-0", "mig", "GPU-0"),
        ("MIG-0-2", "mig", "GPU-0"),
    ]
    assert [one.uuid for one in first] == ["MIG-0-0", "MIG-0-2"]


def test_a_gpu_that_fell_off_the_bus_is_left_out(library: Path) -> None:
    inventory, _, _ = devices(look(library, "lost"))
    assert inventory == [gpu(1)]


@pytest.mark.parametrize(("host", "why"), [("broken", "does not tell its devices"), ("start-hangs", "0.3 s")])
def test_a_driver_that_fails_is_not_a_host_without_gpus(library: Path, host: str, why: str) -> None:
    assert why in look(library, host)


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia"), reason="this host has an NVIDIA driver")
async def test_no_driver_means_the_processor() -> None:
    sampler = NvmlSampler()
    (device,) = sampler.inventory()
    assert (device.uuid, device.kind) == ("cpu", "cpu")
    assert device.memory_total
    (first,) = await sampler.sample()
    assert first.utilisation is None
    assert first.memory_used is not None
    assert 0 < first.memory_used < device.memory_total


CPUINFO = "processor\t: 0\nmodel name\t: Fake Processor 9000\n"
MEMINFO = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nHugePages_Total: 0\n"


def test_the_processor_in_numbers(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0 50 0\n")
    processor = Processor(tmp_path)
    assert processor.device == Device("cpu", "cpu", "Fake Processor 9000", memory_total=1_024_000)
    assert processor.sample() == DeviceSample("cpu", memory_used=614_400)
    (tmp_path / "stat").write_text("cpu  125 0 100 765 110 0 0 0 75 0\n")
    assert processor.sample().utilisation == 25
    assert processor.sample().utilisation is None  # no time has passed


def test_a_processor_of_which_nothing_is_known(tmp_path: Path) -> None:
    processor = Processor(tmp_path)
    assert processor.device == Device("cpu", "cpu", "processor")
    assert processor.sample() == DeviceSample("cpu")
