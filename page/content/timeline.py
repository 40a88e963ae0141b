"""The timeline of a job: what happened and when, from its submission to its end, attempt by attempt. Pure.

    queued ──> assigned ──> started ──> streamed ──> uploaded ──> ended
                   └──> lost ──> assigned again

A control of an earlier release tells no moments; then there is what the job's record says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stoker.client import Attempt, JobAttempts, JobRecord
from stoker.page.content import words
from stoker.page.content.words import duration

UNTAKEN: Mapping[str, str] = {
    "refused": "was refused",
    "handed_back": "was handed back",
    "not_sent": "was not sent",
}
"""Ends of attempts that no worker began, in words: each is told in one moment."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry of a timeline. `icon` is a name of the Material icons. `at`: milliseconds since the epoch;
    None if that is not known."""

    title: str
    about: str = ""
    icon: str = "circle"
    colour: str = "primary"
    at: int | None = None

    @property
    def time(self) -> str:
        return "" if self.at is None else f"{words.moment(self.at)} UTC"


def timeline(job: JobRecord, found: JobAttempts | None, parts: int = 0) -> tuple[Moment, ...]:
    """Returns what is known to have happened to the job, in order. `parts`: how many of its output were
    seen."""
    if found is None:
        return (Moment("Queued", icon="inbox"), *_by_record(job, parts), *_end(job, None))
    moments = [Moment("Queued", icon="inbox", at=found.created_at)]
    waited_from, again = found.created_at, _uploads_again(job, found)
    for one in found.attempts:
        named = f"Attempt {one.attempt}" if len(found.attempts) > 1 else ""
        ends_job = found.ended_at is not None and one.end == job.status.lower() and one is found.attempts[-1]
        moments += _attempt(Told(one, named, waited_from, ends_job, parts, again))
        waited_from = one.ended_at or one.assigned_at
    return tuple(moments) if again else (*moments, *_end(job, found.ended_at))


def _uploads_again(job: JobRecord, found: JobAttempts) -> str | None:
    """Returns why the upload of the last attempt is tried again, if it is."""
    last = found.attempts[-1] if found.attempts else None
    uploads = last is not None and last.uploading_at is not None and last.ended_at is None
    return job.reason if uploads and job.status == "IN_PROGRESS" else None


class Told(NamedTuple):
    """An attempt, and what the others and the job's record say of it. `named`: empty for the only attempt.
    `ends_job`: the job's end is the attempt's. `again`: why the upload that goes on is tried again."""

    one: Attempt
    named: str
    waited_from: int
    ends_job: bool
    parts: int
    again: str | None

    def title(self, verb: str) -> str:
        return f"{self.named} {verb}" if self.named else verb.capitalize()


def _attempt(told: Told) -> Iterator[Moment]:
    one = told.one
    place = f"worker {one.worker}" + (f" on node {one.node}" if one.node else "")
    if (untaken := UNTAKEN.get(one.end or "")) is not None:
        about = ": ".join(filter(None, (place, one.reason)))
        yield Moment(f"Attempt {one.attempt} {untaken}", about, "replay", "warning", one.ended_at)
        return
    waited = duration(max(one.assigned_at - told.waited_from, 0))
    yield Moment(told.title("assigned"), f"to {place}, after {waited}", "person_pin", at=one.assigned_at)
    yield from _work(told)
    if one.ended_at is not None and not told.ends_job:
        title = f"Attempt {one.attempt} {(one.end or 'ended').replace('_', ' ')}"
        yield Moment(title, one.reason or "", "replay", "warning", one.ended_at)


def _work(told: Told) -> Iterator[Moment]:
    one = told.one
    begun = one.assigned_at if one.started_at is None else one.started_at
    if one.started_at is not None:
        about = f"{duration(begun - one.assigned_at)} after it was assigned"
        yield Moment(told.title("started"), about, "play_arrow", at=begun)
    if one.first_chunk_at is not None:
        about = f"the first part after {duration(one.first_chunk_at - begun)}"
        about += f", {told.parts} seen" if told.parts else ""
        yield Moment(told.title("streamed"), about, "stream", at=one.first_chunk_at)
    if one.uploading_at is not None:
        yield _upload(told, one.uploading_at)


def _upload(told: Told, begun: int) -> Moment:
    if told.one.ended_at is not None:
        about = f"for {duration(told.one.ended_at - begun)}"
        return Moment(told.title("uploaded"), about, "upload", at=begun)
    colour = "warning" if told.again else "primary"
    return Moment(told.title("uploads"), told.again or "", "upload", colour, begun)


def _by_record(job: JobRecord, parts: int) -> Iterator[Moment]:
    if job.delay_time is not None:
        where = f" on worker {job.worker_id}" if job.worker_id else ""
        yield Moment("Started", f"after {duration(job.delay_time)}{where}", "play_arrow")
    if parts:
        yield Moment("Streamed", f"{parts} part{'s' if parts > 1 else ''} of the output", "stream")


def _end(job: JobRecord, ended_at: int | None) -> Iterator[Moment]:
    if job.ended:
        title, good = job.status.replace("_", " ").capitalize(), job.succeeded
        about = f"after {duration(job.execution_time)} of work" if job.execution_time is not None else ""
        icon, colour = ("check_circle", "positive") if good else ("error", "negative")
        yield Moment(title, about, icon, colour, ended_at)
    elif job.reason:
        # In progress it began anew, or its upload, which began after the attempts were read, is tried again.
        runs = job.status == "IN_PROGRESS"
        title, icon = ("In progress", "info") if runs else ("Waits", "hourglass_empty")
        yield Moment(title, job.reason, icon, "warning")
