"""Starts a program in a session of its own and waits for it, for as long as nobody ends them.

The program inherits every descriptor that may be inherited, as one started by `os.system` does.
"""

import subprocess
import sys


def handler(job):
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"],
        start_new_session=True,
        close_fds=False,
    )
    job.progress({"child": child.pid})
    child.wait()
