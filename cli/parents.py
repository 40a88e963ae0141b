"""Ends this process when the one that started it does, however that ended: PR_SET_PDEATHSIG with SIGTERM.

The process asks for it itself, early in its life: asking between fork and exec would run Python in a
process with threads. The signal comes when the starting *thread* ends, so `stoker up` starts its children
from its loop's thread.
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
    """Does nothing unless whoever started us asked for it. Takes the wish out of the environment."""
    parent = environ.pop(VARIABLE, None)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before we asked
        sys.exit(1)
