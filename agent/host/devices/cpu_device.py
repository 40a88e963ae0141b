"""The host's CPU and memory as one device, for hosts without a GPU. Reads /proc only."""

from __future__ import annotations

from pathlib import Path

from stoker.wire.messages import Device, DeviceSample

PROC = Path("/proc")


class CpuDevice:
    """The CPU device of a node. Its uuid is unique only within the node."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._last: tuple[int, int] | None = None
        self.device = Device("cpu", "cpu", self._name(), memory_total=host_memory(proc)[0])

    def sample(self) -> DeviceSample:
        _, used = host_memory(self._proc)
        return DeviceSample(self.device.uuid, memory_used=used, utilisation=self._busy())

    def _name(self) -> str:
        for line in _lines(self._proc / "cpuinfo"):
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
        return "processor"

    def _busy(self) -> int | None:
        """Returns the utilisation of all CPUs in percent since the last call; None at the first call."""
        first = next(iter(_lines(self._proc / "stat")), "cpu")
        times = [int(part) for part in first.split()[1:9]]  # guest time is counted in user time already
        if len(times) < 5:
            return None
        now = sum(times), times[3] + times[4]  # total; idle and waiting for disks
        last, self._last = self._last, now
        if last is None or now[0] <= last[0]:
            return None
        return round(100 - 100 * (now[1] - last[1]) / (now[0] - last[0]))


def host_memory(proc: Path = PROC) -> tuple[int | None, int | None]:
    """Returns the bytes of the host's memory, and how many of them are in use: those that no program could be
    given."""
    pairs = [line.split() for line in _lines(proc / "meminfo")]
    memory = {pair[0].rstrip(":"): int(pair[1]) * 1024 for pair in pairs if len(pair) == 3}
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    return total, None if total is None or available is None else total - available


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
