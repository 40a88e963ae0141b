"""`progress`: what a function of an app reports while it runs.

    from stoker.worker.functions import progress

    progress({"step": 3})

On a worker the value becomes the progress of the job; elsewhere it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

Report = Callable[[object], None]
reports: ContextVar[Report | None] = ContextVar("reports", default=None)
"""What takes the values, set around each call."""


def progress(value: object) -> None:
    """Reports any JSON value. Raises ValueRefused for another one."""
    report = reports.get()
    if report is not None:
        report(value)
