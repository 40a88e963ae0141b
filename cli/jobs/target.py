"""The endpoint and the job that a command of `stoker job` is about, and its status where Ctrl-C ends it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class JobTarget:
    """An endpoint of a service, the data folder that may have its key, and a job."""

    url: str
    endpoint: str
    data_dir: Path
    job: str = ""

    def command(self, name: str, *more: str) -> str:
        """Returns another command about the job, to be typed."""
        return shlex.join(["stoker", "job", name, self.endpoint, self.job, *more])
