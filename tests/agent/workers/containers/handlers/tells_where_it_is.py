"""Its environment, user, and what it can see of this platform."""

import os
import sys


def handler(job):
    import stoker

    return {
        "environment": dict(os.environ),
        "uid": os.getuid(),
        "pid": os.getpid(),
        "package": sorted(os.listdir(os.path.dirname(stoker.__file__))),
        "writable": os.access("/stoker/package", os.W_OK),
        "threads": len(os.listdir("/proc")),
        "python": sys.version_info[:2],
    }
