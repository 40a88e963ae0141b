"""GPUs through NVML, against a library built here; and the processor where there is no driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.agent.host.devices.cpu_device import CpuDevice, host_memory
from stoker.agent.host.devices.devices import NvmlSampler
from stoker.agent.host.devices.health import Answered
from stoker.wire.messages import Device, DeviceSample
from tests.nvml_stand_in import Driver, build

GIB = 1 << 30
PATIENCE_S = 30.0
SHORT_S = 2.0
"""Where a question has no answer. Those beside it have theirs by then, or by the next look."""

LOOK = """
import asyncio, json, os, sys
from msgspec.structs import asdict
from stoker.agent.host.devices.devices import NvmlSampler
from stoker.agent.host.devices.interfaces import DevicesUnknown
try:
    sampler = NvmlSampler(*map(float, sys.argv[1:]))
except DevicesUnknown as error:
    print(json.dumps(str(error)))
    sys.exit()
os.putenv("FAKE_NVML_ARMED", "1")
async def twice():
    return [await sampler.read(), await sampler.read()]
first, second = ([look.sample for look in looks] for looks in asyncio.run(twice()))
told = [list(map(asdict, things)) for things in (sampler.inventory(), first, second)]
print(json.dumps(told))
"""

FOLLOW = """
import asyncio, json, os, sys
from stoker.agent.host.devices.devices import NvmlSampler
def say(*told): print(json.dumps(told), flush=True)
async def main():
    sampler, loop = NvmlSampler(deadline_s=float(sys.argv[1])), asyncio.get_running_loop()
    say("ready")
    sampler.listen(lambda uuid, xid: say("xid", uuid, xid))
    while question := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        if question[0] == "look":
            say(*({"uuid": look.sample.uuid, "seen": repr(look.seen)} for look in await sampler.read()))
        elif question[0] == "facts":
            say(sampler.facts(host_pids=question[1] == "yes"))
        elif question[0] == "both":
            looks, used = await asyncio.gather(sampler.read(), sampler.memory_used(question[1]))
            say(repr(looks[0].seen), used)
        elif question[0] == "held":
            say(await sampler.memory_of_processes(question[1], [int(pid) for pid in question[2:]]))
        else:
            say(await sampler.memory_used(question[1]))
    os._exit(0)
asyncio.run(main())
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


def look(library: Path, host: str, short_s: float = SHORT_S) -> Any:
    """What a fresh process tells of that host: the loader's path is read when a process starts."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML": host}
    # The process must end although a thread of it hangs in a driver call.
    deadlines = [short_s if host == hangs else PATIENCE_S for hangs in ("hangs", "start-hangs")]
    command = [sys.executable, "-P", "-c", LOOK, *map(str, deadlines)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(run.stdout)


def devices(reported: Any) -> tuple[list[Device], list[DeviceSample], list[DeviceSample]]:
    """The GPUs of an inventory and of two looks. The CPU comes last in each."""
    inventory, first, second = reported
    assert Device(**inventory.pop()).kind == "cpu"
    assert {first.pop()["uuid"], second.pop()["uuid"]} == {"cpu"}
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


@pytest.mark.parametrize("host", ["unified", "no-memory"])
def test_a_gpu_without_memory_of_its_own_has_that_of_its_host(library: Path, host: str) -> None:
    inventory, first, _ = devices(look(library, host))
    total, used = host_memory()
    assert total is not None
    assert used is not None
    assert inventory == [replace(gpu(0), memory_total=total, unified_memory=True)]
    assert first[0].memory_used is not None
    assert 0 < first[0].memory_used < total
    assert replace(first[0], memory_used=1000) == sample(0)
    with Follower(library, host) as driver:
        assert driver.ask("used GPU-0") == [None], "what the host has in use says nothing of this GPU"


def test_a_call_that_hangs_costs_that_gpus_samples_only(library: Path) -> None:
    only_one = [DeviceSample("GPU-0"), sample(1)]
    for short_s in (SHORT_S, 5 * SHORT_S):  # a machine may hold up the neighbour, too, but not for so long
        inventory, first, second = devices(look(library, "hangs", short_s))
        if first == second == only_one:
            break
    assert inventory == [gpu(0), gpu(1)]
    assert first == second == only_one


def test_the_parts_of_a_divided_gpu(library: Path) -> None:
    inventory, first, _ = devices(look(library, "mig"))
    assert [(one.uuid, one.kind, one.parent) for one in inventory] == [
        ("MIG-0-0", "mig", "GPU-0"),
        ("MIG-0-2", "mig", "GPU-0"),
    ]
    assert [one.name for one in inventory] == ["Fake 0 MIG 1g.10gb", "Fake 0 MIG 3g.10gb"]
    assert {one.memory_total for one in inventory} == {10 * GIB}
    assert [one.uuid for one in first] == ["MIG-0-0", "MIG-0-2"]


def test_a_gpu_that_is_to_be_divided_and_has_no_part_is_there_and_no_use(library: Path) -> None:
    inventory, first, _ = devices(look(library, "mig-empty"))
    assert (inventory, first) == ([gpu(0)], [DeviceSample("GPU-0")])
    with Follower(library, "mig-empty") as driver:
        assert driver.seen() == "Lost(why='it is to be divided (MIG), and no part of it was made')"


def test_a_gpu_that_cannot_be_opened_is_named_by_its_index(library: Path) -> None:
    inventory, first, _ = devices(look(library, "lost"))
    assert inventory == [Device("GPU-at-0", "gpu", "GPU", 0), gpu(1)]
    assert first == [DeviceSample("GPU-at-0"), sample(1)]
    with Follower(library, "lost") as driver:
        assert driver.seen("GPU-at-0") == "Lost(why='it could not be opened: GPU is lost')"
        assert driver.ask("memory GPU-at-0") == [None]


# ---- over time --------------------------------------------------------------------------------------


class Follower:
    """A process with a sampler, and the driver that it sees: what is `set` holds from the next call."""

    def __init__(self, library: Path, host: str = "two", deadline_s: float = PATIENCE_S) -> None:
        self._driver = Driver(library, library / f"state-{os.getpid()}", host)
        self.set = self._driver.tells
        env = {**os.environ, **self._driver.environment}
        command = [sys.executable, "-P", "-c", FOLLOW, str(deadline_s)]
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.next_event() == ["ready"]

    def next_event(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, question: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return self.next_event()

    def seen(self, uuid: str = "GPU-0") -> str:
        return str(next(look["seen"] for look in self.ask("look") if look["uuid"] == uuid))

    @staticmethod
    def answers(question: Callable[[], Any], wanted: object) -> None:
        """With this, or with nothing in so short a time: then it is asked again."""
        while (one := question()) != wanted:
            assert "no answer in time" in str(one) or one[-1] is None, one

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0
        self._process.stdout.close()


HEALTHY = "Answered(uncorrected=0, remap_pending=False, remap_failed=False, action=0)"


def test_what_a_reading_shows_of_health(library: Path) -> None:
    with Follower(library) as driver:
        assert driver.seen() == HEALTHY
        driver.set("ecc 0 5", "pending 0 1", "action 0 4")
        assert driver.seen() == "Answered(uncorrected=5, remap_pending=True, remap_failed=False, action=4)"
        assert driver.seen("GPU-1") == HEALTHY.replace("uncorrected=0", "uncorrected=1")
        driver.set("failed 0 1")
        assert "remap_failed=True" in driver.seen()
        driver.set("pages 0 1")  # before Ampere
        assert driver.seen() == "Answered(uncorrected=0, remap_pending=True, remap_failed=None, action=0)"
    with Follower(library, "silent") as driver:
        unknown = "Answered(uncorrected=None, remap_pending=None, remap_failed=None, action=None)"
        assert driver.seen() == unknown


def test_a_gpu_that_falls_off_the_bus_is_lost_and_one_that_errs_is_missed(library: Path) -> None:
    with Follower(library) as driver:
        driver.set("error 0 15")
        assert driver.seen() == "Lost(why='the GPU is lost')"
        assert driver.ask("memory GPU-0") == [None]
        driver.set("error 0 16")
        assert driver.seen() == "Lost(why='it needs a reset')"
        driver.set("error 0 999")
        assert driver.seen().startswith("Missed(why='Unknown Error")
        driver.set("error 0 3")  # not supported
        assert driver.seen() == HEALTHY


def test_a_driver_that_hangs_is_missed_until_it_answers(library: Path) -> None:
    with Follower(library, deadline_s=SHORT_S) as driver:
        driver.set("hang 0 1")
        assert driver.seen() == "Missed(why='no answer in time')"
        assert driver.ask("memory GPU-0") == [None]
        driver.answers(lambda: driver.seen("GPU-1"), HEALTHY.replace("uncorrected=0", "uncorrected=1"))
        driver.set()
        driver.answers(driver.seen, HEALTHY)


def test_what_is_requested_meanwhile_has_its_turn(library: Path) -> None:
    with Follower(library, deadline_s=SHORT_S) as driver:
        driver.set("slow 0 20", "used 0 5")
        driver.answers(lambda: driver.ask("both GPU-0"), [HEALTHY, 5])
        driver.set("hang 0 1")
        assert driver.ask("both GPU-0") == ["Missed(why='no answer in time')", None]
        driver.set("used 0 6")
        driver.answers(lambda: driver.ask("both GPU-0"), [HEALTHY, 6])


def test_memory_can_be_limited_alone(library: Path) -> None:
    with Follower(library) as driver:
        driver.set("used 0 123456789012", "used 1 5")
        assert [driver.ask(f"memory GPU-{n}") for n in (0, 1)] == [[123456789012], [5]]


def test_what_each_process_holds(library: Path) -> None:
    with Follower(library) as driver:
        driver.set("pid 0 100 7", "pid 1 5 7", "pid 0 30 8", "pid 0 1000 9")
        assert driver.ask("held GPU-0 7 8 999") == [130 << 20]
        assert driver.ask("held GPU-1 7 8") == [5 << 20]
        assert driver.ask("held GPU-1") == [0]
        driver.set("pid 0 -1 7")
        assert driver.ask("held GPU-0 7") == [None], "unknown, and not 0"
    with Follower(library, "silent") as driver:
        assert driver.ask("held GPU-0 7") == [None]


def test_the_drivers_facts(library: Path) -> None:
    with Follower(library) as driver:
        assert driver.ask("facts yes") == [{"cuda": "12.8", "gpu_sharing": "yes"}]
        (blind,) = driver.ask("facts no")
        assert blind["gpu_sharing"].startswith("no: its agent does not see the host's processes")
        driver.set("pid 1 -1 7")
        (reported,) = driver.ask("facts yes")
        assert reported["gpu_sharing"] == "no: its driver does not report what each process holds"
    with Follower(library, "silent") as driver:
        assert driver.ask("facts yes") == [{"gpu_sharing": reported["gpu_sharing"]}]
    with Follower(library, "lost") as driver:
        assert driver.ask("facts yes") == [{"cuda": "12.8", "gpu_sharing": "yes"}]


def test_xids_are_reported_as_they_come(library: Path) -> None:
    with Follower(library) as driver:
        assert driver.seen() == HEALTHY
        driver.set("xid 1 79")
        assert driver.next_event() == ["xid", "GPU-1", 79]
        driver.set("xid 1 79", "xid 0 31", "xid 0 13")
        assert [driver.next_event(), driver.next_event()] == [["xid", "GPU-0", 31], ["xid", "GPU-0", 13]]


def test_the_last_xid_of_a_gpu_that_falls_off_the_bus_is_reported(library: Path) -> None:
    with Follower(library) as driver:
        assert driver.seen() == HEALTHY
        driver.set("error 0 15", "xid 0 79")
        assert driver.next_event() == ["xid", "GPU-0", 79]
        driver.set("error 0 15", "xid 0 79", "xid 1 48")
        assert driver.next_event() == ["xid", "GPU-1", 48], "and its neighbours are heard of as before"


def test_a_gpu_without_events_does_not_silence_the_others(library: Path) -> None:
    with Follower(library, "deaf") as driver:
        assert driver.seen() == HEALTHY
        driver.set("xid 0 79", "xid 1 48")
        assert driver.next_event() == ["xid", "GPU-1", 48]


def test_the_recovery_action_of_a_divided_gpu_counts_for_its_parts(library: Path) -> None:
    with Follower(library, "mig") as driver:
        assert "action=0" in driver.seen("MIG-0-2")
        driver.set("action 0 1", "pending 0 1")
        for part in ("MIG-0-0", "MIG-0-2"):
            assert driver.seen(part) == HEALTHY.replace("uncorrected=0", "uncorrected=None").replace(
                "remap_pending=False", "remap_pending=True"
            ).replace("action=0", "action=1")


def test_an_xid_of_a_divided_gpu_is_about_the_part_it_names_or_about_all(library: Path) -> None:
    with Follower(library, "mig") as driver:
        assert driver.seen("MIG-0-2").startswith("Answered")
        driver.set("xid 0 94 2")
        assert driver.next_event() == ["xid", "MIG-0-2", 94]
        driver.set("xid 0 94 2", "xid 0 79")
        assert [driver.next_event(), driver.next_event()] == [["xid", "MIG-0-0", 79], ["xid", "MIG-0-2", 79]]


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("broken", "does not list its devices"),
        ("start-hangs", "does not answer within 2 s"),
        ("all-lost", "GPU-at-1: it could not be opened: GPU is lost"),
        ("none", "shows no GPU"),
    ],
)
def test_a_driver_that_fails_is_not_a_host_without_gpus(library: Path, host: str, why: str) -> None:
    assert why in look(library, host)


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia"), reason="this host has an NVIDIA driver")
async def test_no_driver_means_the_processor() -> None:
    sampler = NvmlSampler()
    (device,) = sampler.inventory()
    assert (device.uuid, device.kind) == ("cpu", "cpu")
    assert device.memory_total
    (seen,) = await sampler.read()
    first = seen.sample
    assert seen.seen == Answered()
    assert first.utilisation is None
    assert first.memory_used is not None
    assert 0 < first.memory_used < device.memory_total
    assert sampler.facts(host_pids=True) == {}


ON_START = """
import sys
from stoker.agent.host.devices.devices import NvmlSampler
NvmlSampler()
print("pynvml" in sys.modules)
"""


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia"), reason="this host has an NVIDIA driver")
def test_the_bindings_of_nvml_are_imported_where_its_library_is(library: Path) -> None:
    found = [
        subprocess.run(
            [sys.executable, "-P", "-c", ON_START],
            env={**os.environ, "FAKE_NVML": "two", **variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for variables in ({}, {"LD_LIBRARY_PATH": str(library)})
    ]
    assert found == ["False\n", "True\n"]


CPUINFO = "processor\t: 0\nmodel name\t: Fake Processor 9000\n"
MEMINFO = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nHugePages_Total: 0\n"


def test_the_processor_in_numbers(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0 50 0\n")
    cpu = CpuDevice(tmp_path)
    assert cpu.device == Device("cpu", "cpu", "Fake Processor 9000", memory_total=1_024_000)
    assert cpu.sample() == DeviceSample("cpu", memory_used=614_400)
    (tmp_path / "stat").write_text("cpu  125 0 100 765 110 0 0 0 75 0\n")
    assert cpu.sample().utilisation == 25
    assert cpu.sample().utilisation is None  # no time has passed


def test_a_processor_of_which_nothing_is_known(tmp_path: Path) -> None:
    cpu = CpuDevice(tmp_path)
    assert cpu.device == Device("cpu", "cpu", "processor")
    assert cpu.sample() == DeviceSample("cpu")
