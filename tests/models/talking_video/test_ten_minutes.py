"""The longest voice that is allowed, spoken to its end by one job, at the smallest size that the parts can
draw, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import pytest

from stoker.models.talking_video.video import video_file

CHECKS = Path(__file__).parent / "checks_ten_minutes.py"
SECONDS = 600
MIB = 1 << 20
MOST_GROWTH = 4 * MIB
"""A quarter of the sound would be more, and so would one of each second's frames, as bytes."""

GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""What the process frees goes back to the system at once. The C library would else keep tens of MiB, the more
the larger the blocks that were freed: after a full stretch was encoded it looks like growth."""


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_minutes_take_the_memory_of_one(tmp_path: Path) -> None:
    """While the audio is encoded, that of two: the first stretch has nothing behind it, the first full one is
    in the second minute."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    command = [sys.executable, "-P", str(CHECKS), str(tmp_path)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=1400, env=ours | GIVES_BACK
    )
    assert done.returncode == 0, done.stderr
    _check(tmp_path / "video.mp4")
    found = json.loads(done.stdout.splitlines()[-1])
    held, hearing = found["held"], found["hearing"]
    for what, minutes in found.items():
        print(f"{what:<7}, MiB in each minute:", *(f"{most / MIB:.1f}" for most in minutes))
    assert len(held) == len(hearing) == 10
    assert all(held)
    assert max(held) - held[0] < MOST_GROWTH
    assert hearing[1] > held[1], "nothing was measured while the second stretch was encoded"
    assert max(hearing) - max(hearing[:2]) < MOST_GROWTH


def _check(path: Path) -> None:
    frames = SECONDS * 25
    assert video_file.checked(path, frames).seconds == SECONDS
    with av.open(str(path)) as video:
        times = [packet.pts * packet.time_base for packet in video.demux(video=0) if packet.size]  # type: ignore[operator]
    assert times == [Fraction(number, 25) for number in range(frames)]
