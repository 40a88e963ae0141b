"""Reads from address 0: a SIGSEGV in native code."""

import ctypes


def handler(job):
    ctypes.string_at(0)
