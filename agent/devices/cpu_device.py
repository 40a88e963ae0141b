"""The host's processor and memory as one device, for hosts without a GPU. Reads /proc, nothing else."""

from __future__ import annotations

from pathlib import Path

from stoker.wire.messages import Device, DeviceSample

PROC = Path("/proc")


class Processor:
    """Its uuid tells it from the other devices of its node only: a node has one."""

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
        """/proc/meminfo in bytes."""
        pairs = [line.split() for line in self._lines("meminfo")]
        return {pair[0].rstrip(":"): int(pair[1]) * 1024 for pair in pairs if len(pair) == 3}

    def _busy(self) -> int | None:
        """Percent of all processors since the last look; None at the first."""
        first = next(iter(self._lines("stat")), "cpu")
        times = [int(part) for part in first.split()[1:9]]  # guest time is counted in user time already
        if len(times) < 5:
            return None
        now = sum(times), times[3] + times[4]  # all, idle and waiting for disks
        last, self._last = self._last, now
        if last is None or now[0] <= last[0]:
            return None
        return round(100 - 100 * (now[1] - last[1]) / (now[0] - last[0]))

    def _lines(self, name: str) -> list[str]:
        try:
            return (self._proc / name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
