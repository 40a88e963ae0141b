"""Starts daemons when it is asked to, and tells what it can read: environments, descriptors, its volume."""

import os
import pathlib
import subprocess
import sys


def handler(job):
    sleep = [sys.executable, "-I", "-S", "-c", "import signal\nwhile True: signal.pause()"]
    for _ in range(job.input.get("daemons", 0)):
        subprocess.Popen(sleep, start_new_session=True)
    seen = {}
    for name in ("self", os.getppid()):
        try:
            seen[str(name)] = pathlib.Path(f"/proc/{name}/environ").read_text()
        except OSError as error:
            seen[str(name)] = str(error)
    volume = os.environ.get("STOKER_VOLUME_PATH")
    if volume:
        (pathlib.Path(volume) / "written").touch()
    return {"pid": os.getpid(), "parent": os.getppid(), "seen": list(seen.values()), "volume": volume}
