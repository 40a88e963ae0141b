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
        total = self._memory().get("MemTotal")
        self.device = Device("cpu", "cpu", self._name(), memory_total=total)

    def sample(self) -> DeviceSample:
        memory = self._memory()
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        used = None if total is None or available is None else total - available
        return DeviceSample(self.device.uuid, memory_used=used, utilisation=self._busy())

    def _name(self) -> str:
        for line in self._lines("cpuinfo"):
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
        return "processor"

    def _memory(self) -> dict[str, int]:
        """Returns the values of /proc/meminfo in bytes."""
        pairs = [line.split() for line in self._lines("meminfo")]
        return {pair[0].rstrip(":"): int(pair[1]) * 1024 for pair in pairs if len(pair) == 3}

    def _busy(self) -> int | None:
        """Returns the utilisation of all CPUs in percent since the last call; None at the first call."""
        first = next(iter(self._lines("stat")), "cpu")
        times = [int(part) for part in first.split()[1:9]]  # guest time is counted in user time already
        if len(times) < 5:
            return None
        now = sum(times), times[3] + times[4]  # total; idle and waiting for disks
        last, self._last = self._last, now
        if last is None or now[0] <= last[0]:
            return None
        return round(100 - 100 * (now[1] - last[1]) / (now[0] - last[0]))

    def _lines(self, name: str) -> list[str]:
        try:
            return (self._proc / name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
