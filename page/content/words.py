"""Numbers, times and states as people read them. No clock."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

COLOURS: Mapping[str, str] = {
    "COMPLETED": "positive",
    "FAILED": "negative",
    "TIMED_OUT": "negative",
    "CANCELLED": "secondary",
    "IN_PROGRESS": "primary",
    "IN_QUEUE": "warning",
}
"""The colour of a job's status, by Quasar's names."""


def duration(milliseconds: float | None) -> str:
    """Returns a time span with a unit that suits it, such as "1.2 s"."""
    if milliseconds is None:
        return "–"
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def size(count: float | None) -> str:
    """Returns a number of bytes with a unit of 1024, such as "1.5 GiB"."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def moment(milliseconds: int | None) -> str:
    """Returns a time since the epoch in UTC, to the second."""
    if milliseconds is None:
        return "–"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "–"


def typed_moment(text: str) -> int | None:
    """Returns a typed time in UTC in milliseconds since the epoch; None for an empty text. A minute or a day
    is taken with its end. Raises ValueError."""
    text = text.strip()
    if not text:
        return None
    for form, length in (("%Y-%m-%d %H:%M:%S", 1), ("%Y-%m-%d %H:%M", 60), ("%Y-%m-%d", 86_400)):
        with suppress(ValueError):
            began = datetime.strptime(text, form).replace(tzinfo=UTC)
            return max(0, round(1000 * (began.timestamp() + length)) - 1)
    raise ValueError(
        f"a time must be like 2026-11-28, 2026-11-28 14:30 or 2026-11-28 14:30:05; got {text[:50]!r}"
    )


def log_line(line: str, printed_at: int | None = None) -> str:
    """Returns a line of a log after its time, in UTC to the second, if that is known."""
    return line if printed_at is None else f"{moment(printed_at).rpartition(' ')[2]} {line}"


def log_line_of(event: Mapping[str, Any]) -> str:
    """Returns the line of a log's event after its time: `printedAt` of a job or a worker, `ts` of a pod."""
    if "ts" in event:
        return f"{str(event['ts'])[11:19]} {event['line']}"
    return log_line(str(event["line"]), event.get("printedAt"))


def cost_of(output: Any) -> str:
    """Returns the cost that an output names, in US dollars, or an empty text."""
    cost = output.get("cost") if isinstance(output, Mapping) else None
    return f"${cost:.6f}".rstrip("0").rstrip(".") if isinstance(cost, int | float) else ""


def counted(counts: Mapping[str, int], **names: str) -> str:
    """Returns the counts that are not 0 with their names, as "2 running, 1 idle"; "none" if all are 0."""
    shown = [f"{counts[name]:,} {shown}" for name, shown in names.items() if counts.get(name)]
    return ", ".join(shown) or "none"
