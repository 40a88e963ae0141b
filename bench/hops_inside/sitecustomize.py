"""A recorder of functions: Python runs it at the start of each process of `bench/hops.py`, which puts this
folder on PYTHONPATH.

While the first byte of the file `counting` is 1, records each function of this repository that the process
enters: the time, its file, and its name. A coroutine that resumes after a wait does not count. All is written
when the first function is entered after that: writing at once would make a short job a long one.
"""

import builtins
import dis
import mmap
import os
import sys
import threading
import time

_FOLDER = os.environ["STOKER_HOPS"]
_SOURCE = os.environ["STOKER_HOPS_SOURCE"]
_PACKAGES = ("agent/", "cli/", "control/", "outbound/", "wire/", "worker/")
_RESUME = dis.opmap["RESUME"]
_counting = os.open(os.path.join(_FOLDER, "counting"), os.O_RDONLY)
_flag = mmap.mmap(_counting, 1, prot=mmap.PROT_READ)
os.close(_counting)
_entered: list[str] = []
_lines: dict[int, str | None] = {}
"""The text to record by code object; None if it is not of this repository."""


def _profile(frame, event, _argument):
    if event != "call":
        return
    if not _flag[0]:
        if _entered:
            _write()
        return
    code = frame.f_code
    at = frame.f_lasti
    if at >= 0 and code.co_code[at] == _RESUME and code.co_code[at + 1] & 3:
        return
    key = id(code)
    if key not in _lines:
        _lines[key] = _described(code)
    line = _lines[key]
    if line is not None:
        _entered.append(f"{time.monotonic_ns()} {line}\n")


def _write():
    written = len(_entered)
    with open(os.path.join(_FOLDER, f"{os.getpid()}.entered"), "a") as file:
        file.writelines(_entered[:written])
    del _entered[:written]


def _described(code):
    path = os.path.relpath(os.path.realpath(code.co_filename), _SOURCE)
    if not path.startswith(_PACKAGES):
        return None
    # A comprehension or a lambda counts as part of the function around it.
    names = code.co_qualname.split(".")
    while len(names) > 1 and names[-1].startswith("<"):
        names.pop()
    return f"{path} {'.'.join(names)}"


def _import_uncounted(*arguments, **named):
    """What is imported at the start, before anything is counted, takes half the time without the profiler."""
    if sys.getprofile() is None:
        return _import(*arguments, **named)
    sys.setprofile(None)
    try:
        return _import(*arguments, **named)
    finally:
        sys.setprofile(_profile)


_import = builtins.__import__
builtins.__import__ = _import_uncounted
threading.setprofile(_profile)
sys.setprofile(_profile)
