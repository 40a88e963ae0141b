"""The memory before, during and after each job: of the GPU as torch counts it, else of this process.

A worker that keeps something of each job shows it in its log: `after_bytes` then grows from job to job.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

MIB = 2**20


@dataclass(frozen=True, slots=True)
class JobMemory:
    """The memory of a job. `most_bytes`: the largest amount during the job, known of a GPU only. None is
    unknown."""

    before_bytes: int | None
    after_bytes: int | None
    most_bytes: int | None


class MemoryGauge:
    """The gauge of a worker's memory. `last`: that of the last job. `most_bytes`: the largest amount of all
    jobs so far; None without a GPU."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device.startswith("cuda")
        self.last: JobMemory | None = None
        self.most_bytes: int | None = None

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """Measures the memory of a job, however the job ends."""
        before = self._reset()
        try:
            yield
        finally:
            most = self._peak()
            self.last = JobMemory(before, self._now(), most)
            self.most_bytes = max(filter(None, (self.most_bytes, most)), default=None)
            log.info(
                "memory in MiB: %s before the job, at most %s in it, %s after it",
                *map(_mib, (before, most, self.last.after_bytes)),
            )

    def _reset(self) -> int | None:
        if self._on_gpu:
            import torch

            torch.cuda.reset_peak_memory_stats()
        return self._now()

    def _now(self) -> int | None:
        if self._on_gpu:
            import torch

            return int(torch.cuda.memory_allocated())
        return process_bytes()

    def _peak(self) -> int | None:
        if not self._on_gpu:
            return None
        import torch

        return int(torch.cuda.max_memory_allocated())


def _mib(size: int | None) -> str:
    return "?" if size is None else str(size // MIB)


def process_bytes() -> int | None:
    """Returns the resident memory of this process; None where there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
