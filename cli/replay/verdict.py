"""The comparison of a replay with the job's case: what differs here, and whether it failed in the same way.
Pure.

    the same   type, message and place; the line counts only where the file is the same
    put aside  scratch folders, addresses of objects, and what a URL has after its path
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

TRACEBACK = "\nTraceback (most recent call last)"
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")
_URL = re.compile(r"(https?://)([^\s\"'<>\\?#]+)[?#][^\s\"'<>\\]*", re.IGNORECASE)

Ended = Literal["returned", "raised", "stopped", "timed_out", "died"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run's end. `facts` are as in a case; `error` is the text that the platform would show."""

    ended: Ended
    error: str = ""
    facts: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """A thing that is not here as it was there. None: it is not there, or not known."""

    what: str
    there: str | None
    here: str | None

    def __str__(self) -> str:
        return f"{self.what}: {self.there or 'not known'} there, {self.here or 'none'} here"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision that the same came, or did not, and a sentence that says why."""

    same: bool
    reason: str


def verdict(case: Mapping[str, Any], run: Run) -> Verdict:
    """Returns whether the run ended as the job did."""
    there, here = _end_of(case), run.ended
    if here == "stopped":
        return Verdict(True, f"stopped as told: {run.error}")
    if there != here:
        return Verdict(False, f"the job {_IN_WORDS[there]}, and the replay {_IN_WORDS[here]}")
    if there != "raised":
        return Verdict(True, f"both {_IN_WORDS[there]}")
    return _same_exception(case, run)


_IN_WORDS: Mapping[Ended, str] = {
    "returned": "returned an output",
    "raised": "raised an exception",
    "stopped": "was stopped",
    "timed_out": "ran out of time",
    "died": "lost its process",
}


_ENDS: Mapping[str, Ended] = {"TIMED_OUT": "timed_out", "COMPLETED": "returned"}


def _end_of(case: Mapping[str, Any]) -> Ended:
    if case["status"] in _ENDS:
        return _ENDS[case["status"]]
    return "raised" if "raised" in case else "died"


def _same_exception(case: Mapping[str, Any], run: Run) -> Verdict:
    facts = run.facts or {}
    there, here = case["raised"], facts.get("raised", {})
    if there["type"] != here.get("type"):
        return Verdict(False, f"the job raised {there['type']}, and the replay {here.get('type')}")
    messages = (
        message_of(str(case.get("error", "")), str(case.get("scratch", ""))),
        message_of(run.error, str(facts.get("scratch", ""))),
    )
    if messages[0] != messages[1]:
        return Verdict(
            False, f"the same type, another message: {messages[1]!r}, and the job's {messages[0]!r}"
        )
    places = [_place(one, with_line=_same_file(case, facts)) for one in (there, here)]
    if places[0] != places[1]:
        return Verdict(
            False, f"the same exception from another place: {places[1]}, and the job's {places[0]}"
        )
    return Verdict(True, f"{there['type']} at {places[0]}: {messages[0]}")


def _same_file(case: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    file = case["raised"].get("file")
    there, here = (one.get("source", {}).get(file) for one in (case, facts))
    return there is not None and there == here


def _place(raised: Mapping[str, Any], *, with_line: bool) -> str:
    if "file" not in raised:
        return "no place"
    line = f", line {raised.get('line')}" if with_line else ""
    return f"{raised['file']} in {raised.get('function')}{line}"


def message_of(error: str, scratch: str) -> str:
    """Returns the message of an error's text, without what differs between any two runs."""
    message = error.partition(TRACEBACK)[0]
    if scratch:
        message = message.replace(scratch, "<scratch>")
    return _URL.sub(r"\1\2", _ADDRESS.sub("0x…", message)).strip()


# ---- what differs here ----------------------------------------------------------------------------


def differences(case: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Difference]:
    """Yields what the job ran on and this machine has otherwise. `facts`: those of the replay's process."""
    for file, digest in case.get("source", {}).items():
        here = facts.get("source", {}).get(file)
        if here != digest:
            yield Difference(f"source {file}", digest[:12], here and here[:12])
    for what in ("python", "system", "cuda"):
        if case.get(what) and case[what] != facts.get(what):
            yield Difference(what, case[what], facts.get(what))
    for kind in ("libraries", "settings"):
        for name, value in case.get(kind, {}).items():
            if (here := facts.get(kind, {}).get(name)) != value:
                yield Difference(name, value, here)
    yield from _device(case, facts)
    for name in case.get("declaredEnvironment", ()):
        if name not in facts.get("environment", ()):
            yield Difference(f"variable {name}", "set", "not set")


def _device(case: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Difference]:
    """Yields the difference of devices. CPUs count as alike here: what differs between them is a last bit."""
    was = device_of(case)
    if was and facts.get("device") and was != facts["device"]:
        yield Difference("device", was, facts["device"])


def device_of(case: Mapping[str, Any]) -> str:
    """Returns the names of the devices that a case, or what a worker noted, tells of."""
    devices = case.get("devices", ())
    return ", ".join("CPU" if one.get("kind") == "cpu" else one.get("name", "") for one in devices)


def reported_seed(case: Mapping[str, Any]) -> int | None:
    """Returns the seed that the job reported with its progress, if its input has none."""
    progress, given = case.get("progress"), case.get("input")
    seed = progress.get("seed") if isinstance(progress, Mapping) else None
    if not isinstance(given, Mapping) or given.get("seed") is not None or isinstance(seed, bool):
        return None
    return seed if isinstance(seed, int) else None
