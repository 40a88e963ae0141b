"""Starts a program in a session of its own and waits for it, for as long as nobody ends them."""

import subprocess
import sys


def handler(job):
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True
    )
    job.progress({"child": child.pid})
    child.wait()
