"""Messages about workers in a crash loop at the terminal of `stoker up`: once per endpoint version, until one
is ready.

Pure. A crashing worker is restarted without end. The terminal shows the first crash loop only, with its
reason and the file of its last lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

CAUSE = "crash loop: "


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about an endpoint. `text` is for the terminal. `log`: the last lines of the worker, for the
    endpoint's log file, or None."""

    endpoint: str
    text: str
    log: str | None = None


@dataclass(slots=True)
class CrashLoops:
    """The endpoint versions that are known to crash."""

    known: set[tuple[str, int]] = field(default_factory=set)

    def update(self, report: Mapping[str, Any]) -> Notice | None:
        """Returns what to print about an agent's report, if anything. `report` has endpoint, version, worker,
        state, reason and log."""
        endpoint, key = str(report["endpoint"]), (str(report["endpoint"]), int(report["version"]))
        state: Literal["unhealthy", "ready"] | str = report["state"]
        if state == "ready" and key in self.known:
            self.known.discard(key)
            return Notice(endpoint, f"endpoint {endpoint} has a worker that is ready")
        if state != "unhealthy" or key in self.known:
            return None
        self.known.add(key)
        reason = str(report["reason"]).removeprefix(CAUSE)
        text = f"worker {report['worker']} of endpoint {endpoint} keeps ending: {reason}; it is tried again"
        return Notice(endpoint, text, "\n".join([*report["log"], reason, ""]))
