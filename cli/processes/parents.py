"""The end of this process when its parent ends, in whatever way: PR_SET_PDEATHSIG with SIGTERM.

The process sets the signal itself, early in its life: setting it between fork and exec would run Python in a
process with threads. The kernel sends the signal when the *thread* that started the process ends, so `stoker
up` starts its children from the thread of its event loop.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import MutableMapping

VARIABLE = "STOKER_PARENT"
_PR_SET_PDEATHSIG = 1


def end_with_parent(environ: MutableMapping[str, str]) -> None:
    """Does nothing unless the parent has set STOKER_PARENT, which is removed from the environment."""
    parent = environ.pop(VARIABLE, None)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # the parent died before prctl
        sys.exit(1)
