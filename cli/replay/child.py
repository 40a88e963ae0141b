"""The process of a replay: runs the handler once, and writes how that ended.

    python -m stoker.cli.replay.child PLAN

PLAN is a file of JSON: handler, input, saved, files, network, until, out, use_gpu; begins, a descriptor to
write to when the handler begins; and result, the path of the file to write. The process is apart, since a
handler may end it, or not come to an end.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from stoker.cli.errors import CliError
from stoker.cli.predict.device import first_device
from stoker.cli.predict.run import print_event, save_files
from stoker.cli.replay.results import write_results
from stoker.cli.terminal import print_text
from stoker.worker.errors import Cancelled, RegistrationError, describe
from stoker.worker.sdk import Device
from stoker.worker.setup.registration import load
from stoker.worker.testing import LocalJob, LocalSave

REFUSED = 3
"""The exit status where the handler could not be loaded or prepared; the sentence is printed."""


class _Stop(Cancelled):
    """The end that was asked for: raised where the handler reports, so that it ends there."""


class _Watch:
    """Prints what the handler reports, keeps the facts, and raises _Stop after `until` reports. `begun` is
    called when the handler begins."""

    def __init__(self, until: int | None, begun: Callable[[], None]) -> None:
        self._until = until
        self._begun = begun
        self._count = 0
        self.facts: dict[str, Any] = {}
        self.stopped = ""

    def take_case(self, facts: dict[str, Any]) -> None:
        if not self.facts:
            self._begun()
        self.facts = facts

    def take_report(self, kind: str, value: Any) -> None:
        self._count += 1
        print_event(kind, value)
        if self._count == self._until:
            self.stopped = f"after report {self._count}"
            raise _Stop(self.stopped)


def main(plan: dict[str, Any]) -> None:
    """Runs the plan. Raises CliError where there is nothing to run."""
    device = first_device(os.environ) if plan["use_gpu"] else Device()
    watch = _Watch(plan["until"], partial(_begin, plan["begins"]))
    job = _job(plan, device, watch)
    try:
        job.run()
    except Exception as error:  # a class may raise anything while it is set up
        raise CliError(f"the handler cannot be set up here: {describe(error)}") from None
    ended = _ended(job, watch)
    _write(job, plan, returned=ended["ended"] == "returned")
    facts = {**watch.facts, "device": "CPU" if device.kind == "cpu" else device.name}
    Path(plan["result"]).write_text(json.dumps({**ended, "facts": facts}))


def _begin(fd: int) -> None:
    os.write(fd, b"!")
    os.close(fd)


def _job(plan: dict[str, Any], device: Device, watch: _Watch) -> LocalJob:
    saved = plan["saved"]
    try:
        handler = load(plan["handler"]).target
    except RegistrationError as error:
        raise CliError(str(error)) from None
    return LocalJob(
        handler,
        plan["input"],
        device=device,
        network=plan["network"],
        files=plan["files"],
        saved=None if saved is None else LocalSave(base64.b64decode(saved["body"]), saved["upto"]),
        on_progress=lambda value: watch.take_report("progress", value),
        on_chunk=lambda value: watch.take_report("chunk", value),
        on_case=watch.take_case,
    )


def _ended(job: LocalJob, watch: _Watch) -> dict[str, str]:
    if watch.stopped:
        return {"ended": "stopped", "error": watch.stopped}
    if job.error is not None:
        return {"ended": "raised", "error": job.error}
    return {"ended": "returned", "error": ""}


def _write(job: LocalJob, plan: dict[str, Any], *, returned: bool) -> None:
    """Writes the results. No chunk has a file."""
    out = Path(plan["out"])
    output = save_files(job.result(), out, lambda path: {"$file": path.name}) if returned else None
    first = 0 if plan["saved"] is None else plan["saved"]["upto"]
    write_results(out, output, job.chunks, first=first, returned=returned)


if __name__ == "__main__":
    try:
        main(json.loads(Path(sys.argv[1]).read_text()))
    except CliError as refused:
        print_text(f"stoker: {refused}", to_stderr=True)
        sys.exit(REFUSED)
