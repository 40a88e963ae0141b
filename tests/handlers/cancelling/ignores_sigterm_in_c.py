"""Sits in native code that holds the interpreter lock, with SIGTERM blocked and ignored.

Neither a cancel nor a SIGTERM reaches it: only SIGKILL ends it. It reports progress once it is about to sit.
"""

import ctypes
import signal


def handler(job):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    job.progress("stuck")
    ctypes.PyDLL(None).sleep(job.input.get("seconds", 3600))
    return {"slept": True}
