"""The libraries' variables: what they change in a worker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stoker.models import libraries

TWO_THREADS_ON_ONE_CORE = """
import os, time, torch
torch.set_num_threads(2)
numbers = torch.zeros(1 << 16)
numbers.add_(1)
core = {min(os.sched_getaffinity(0))}
for thread in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(thread), core)
began = time.process_time()
for _ in range(100):
    numbers.add_(1)
print(time.process_time() - began)
"""


@pytest.mark.slow
def test_threads_that_wait_for_one_another_leave_the_core_to_others() -> None:
    """Each of two threads that spin takes a whole time slice before the other one goes on: 0.6 s in sum."""
    ended = subprocess.run(
        [sys.executable, "-c", TWO_THREADS_ON_ONE_CORE],
        env={**os.environ, **libraries.ENV},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(ended.stdout) < 0.1
