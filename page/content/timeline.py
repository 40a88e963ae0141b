"""The timeline of a job: what happened, from its submission to its end. Pure.

queued ──delay──> started ──> streamed ──execution──> ended
each attempt before the last: lost, with its worker
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.client import AttemptLog, JobRecord
from stoker.page.content.words import duration


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry of a timeline. `icon` is a name of the Material icons."""

    title: str
    about: str = ""
    icon: str = "circle"
    colour: str = "primary"


def timeline(job: JobRecord, attempts: Sequence[AttemptLog], parts: int = 0) -> tuple[Moment, ...]:
    """Returns what is known to have happened to the job, in order. `parts`: how many of its output were
    seen."""
    found = [Moment("Queued", icon="inbox")]
    found += [
        Moment(f"Attempt {lost.attempt} was lost", f"on worker {lost.worker}", "replay", "warning")
        for lost in attempts[: job.retries]
    ]
    if job.delay_time is not None:
        where = f" on worker {job.worker_id}" if job.worker_id else ""
        found.append(Moment("Started", f"after {duration(job.delay_time)}{where}", "play_arrow"))
    if parts:
        found.append(Moment("Streamed", f"{parts} part{'s' if parts > 1 else ''} of the output", "stream"))
    if job.ended:
        good = job.succeeded
        about = f"after {duration(job.execution_time)} of work" if job.execution_time is not None else ""
        found.append(
            Moment(
                job.status.replace("_", " ").capitalize(),
                about,
                "check_circle" if good else "error",
                "positive" if good else "negative",
            )
        )
    elif job.reason:
        uploads = job.status == "IN_PROGRESS"
        title, icon = ("Uploads", "upload") if uploads else ("Waits", "hourglass_empty")
        found.append(Moment(title, job.reason, icon, "warning"))
    return tuple(found)
