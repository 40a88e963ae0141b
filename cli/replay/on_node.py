"""A replay on a node of the platform: started there, watched to its end, and its results downloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.cli.access import RESENDS, ca_file
from stoker.cli.errors import CliError
from stoker.cli.jobs.watch import watch
from stoker.cli.predict.run import print_event
from stoker.cli.replay.results import download_results
from stoker.cli.replay.verdict import Run, device_of
from stoker.cli.terminal import print_text
from stoker.client import AsyncClient, Client, ClientError, Event, JobRecord, NotFound
from stoker.worker.job.attempt import STOPPED


def run_on_node(
    stoker: Client,
    case: Mapping[str, Any],
    node: str,
    out: Path,
    *,
    url: str,
    key: str,
    from_start: bool,
    until: int | None,
    seed: int | None,
) -> Run:
    """Runs the case on the node, and returns how that ended. Ctrl-C cancels the replay."""
    started = stoker.replay(
        case["endpoint"], case["id"], node, from_start=from_start, stop_after=until or 0, seed=seed
    )
    endpoint, job = str(started["endpoint"]), str(started["id"])
    print_text(f"replay {job} on node {node}, at endpoint {endpoint}", to_stderr=True)
    try:
        asyncio.run(_watch(url, key, endpoint, job))
    except (KeyboardInterrupt, ClientError):
        stoker.cancel(endpoint, job)
        raise
    covered = 0 if from_start else case.get("saved", {}).get("upto", 0)
    record = download_results(stoker, endpoint, job, out, covered)
    if record.status == "CANCELLED":
        raise CliError(f"the replay {job} was cancelled: {record.reason or 'nobody said why'}")
    return _as_run(record, _case_of(stoker, endpoint, job), until)


async def _watch(url: str, key: str, endpoint: str, job: str) -> None:
    """Prints why the job waits, and its reports, until it has ended."""
    shown = ""

    def on_state(record: JobRecord) -> None:
        nonlocal shown
        if record.status == "IN_QUEUE" and record.reason and record.reason != shown:
            shown = record.reason
            print_text(f"waits: {shown}", to_stderr=True)

    def on_event(event: Event) -> None:
        if event.kind in ("progress", "chunk"):
            print_event(event.kind, event.value["output"])

    async with AsyncClient(url, key, resends=RESENDS, ca_file=ca_file()) as stoker:
        await watch(stoker, endpoint, job, on_state, on_event)


def _case_of(stoker: Client, endpoint: str, job: str) -> dict[str, Any] | None:
    try:
        return stoker.case(endpoint, job)
    except NotFound:
        return None


def _as_run(record: JobRecord, case: Mapping[str, Any] | None, until: int | None) -> Run:
    """Returns a replay's record and case as the end of a run."""
    error = record.error or record.reason or ""
    if until is not None and STOPPED in error:
        return Run("stopped", f"after report {until}", _facts(case))
    match record.status:
        case "COMPLETED":
            return Run("returned", "", _facts(case))
        case "TIMED_OUT":
            return Run("timed_out", error, _facts(case))
        case "FAILED" if case is not None and "raised" in case:
            return Run("raised", error, _facts(case))
    return Run("died", error, _facts(case))


def _facts(case: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the facts of a case as a process here tells them."""
    if case is None:
        return {}
    return {**case, "device": device_of(case)}
