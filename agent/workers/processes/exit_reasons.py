"""Describes why a process ended. Pure."""

from __future__ import annotations

import signal

_KNOWN = {
    signal.SIGKILL: "killed, likely out of memory",
    signal.SIGSEGV: "crashed: segmentation fault (SIGSEGV)",
    signal.SIGABRT: "crashed: aborted (SIGABRT)",
    signal.SIGBUS: "crashed: bus error (SIGBUS)",
    signal.SIGILL: "crashed: illegal instruction (SIGILL)",
    signal.SIGFPE: "crashed: arithmetic error (SIGFPE)",
}


def describe_exit(status: int, killed: str | None, *, terminated: bool) -> str:
    """Returns the end of a process in words. `status` as subprocess gives it; `killed` is why the agent
    killed it, when it did."""
    if killed is not None and status == -signal.SIGKILL:
        return killed
    if status >= 0:
        return f"exited with code {status}"
    if terminated and status == -signal.SIGTERM:
        return "stopped by the agent (SIGTERM)"
    return _KNOWN.get(-status) or f"ended by {signal_name(-status)}"  # type: ignore[call-overload]


def signal_name(number: int) -> str:
    """Returns the name of a signal. Most real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
