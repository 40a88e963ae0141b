"""A replay: the case is downloaded, run in a process of its own or on a node, and compared.

    case ─┬─ handler? ── files? ── child: the handler ─┬── differs? ──> same, or not, with the reason
          └─ --on: a job of the platform ──────────────┘

Standard output contains the verdict alone; everything else is printed to standard error. Exit status: 0 the
same, 1 not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from stoker.cli.access import find_key, open_client
from stoker.cli.errors import CliError
from stoker.cli.options import config_file
from stoker.cli.replay.child import REFUSED
from stoker.cli.replay.files import Found, find_files
from stoker.cli.replay.on_node import run_on_node
from stoker.cli.replay.outputs import first_difference, first_difference_from_job
from stoker.cli.replay.results import download_results
from stoker.cli.replay.verdict import Difference, Run, Verdict, differences, reported_seed, verdict
from stoker.cli.terminal import json_text, print_text
from stoker.client import Client, NotFound

THE_JOB = "job"
"""The value of `--compare` that means the job's own results. A folder of this name is `./job`."""

FORMAT = 1
"""The version of cases that is read here."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Options of a replay."""

    job: str
    endpoint: str | None
    handler: str | None
    files: tuple[Path, ...]
    fetch: bool
    from_start: bool
    until: int | None
    on: str | None
    compare: str | None
    out: Path
    use_gpu: bool
    as_json: bool
    url: str
    data_dir: Path
    config: Path | None


def run(options: Replay) -> int:
    """Returns the exit status. Raises CliError where the job cannot be replayed."""
    with (
        open_client(options.url, options.data_dir) as stoker,
        tempfile.TemporaryDirectory(prefix="stoker-replay-") as folder,
    ):
        case = _case(stoker, options)
        _say(f"job {case['id']} of endpoint {case['endpoint']}, attempt {case['attempt']}, {case['status']}")
        files: list[Found] = []
        if options.on is None:
            handler = _handler(case, options)
            files = find_files(case.get("files", ()), options.files, Path(folder), fetch=options.fetch)
            for one in files:
                _say(f"file {one.url}: {one.missing or 'the same'}")
            plan = _plan(case, handler, files, options, Path(folder))
            ended = _run_child(plan, case["executionTimeoutMs"] / 1000)
        else:
            ended = _on_node(stoker, case, options.on, options)
        unlike = list(differences(case, ended.facts)) if ended.facts else []
        for difference in unlike:
            _say(f"differs: {difference}")
        found = _found(stoker, case, ended, Path(folder), options)
    _print(found, unlike, files, ended, options)
    return 0 if found.same else 1


def _on_node(stoker: Client, case: dict[str, Any], node: str, options: Replay) -> Run:
    return run_on_node(
        stoker,
        case,
        node,
        options.out,
        url=options.url,
        key=find_key(options.data_dir),
        from_start=options.from_start,
        until=options.until,
        seed=reported_seed(case),
    )


# ---- the case -------------------------------------------------------------------------------------


def _case(stoker: Client, options: Replay) -> dict[str, Any]:
    endpoint = options.endpoint or _endpoint_of(stoker, options.job)
    case = stoker.case(endpoint, options.job)
    if case.get("case") != FORMAT:
        raise CliError(f"the service's case is of version {case.get('case')}; this stoker reads {FORMAT}")
    return case


def _endpoint_of(stoker: Client, job: str) -> str:
    """Returns the endpoint that has this job: ids of jobs do not say it."""
    for endpoint in stoker.manage.endpoints.list():
        if endpoint.get("type") != "QUEUE":
            continue
        try:
            stoker.status(str(endpoint["id"]), job)
        except NotFound:
            continue
        return str(endpoint["id"])
    raise CliError(f"no endpoint has a job {job}: the id is wrong, or its time has passed")


def _handler(case: dict[str, Any], options: Replay) -> str:
    """Returns the handler to run: the one that was given, or the endpoint's in stoker.toml, or an installed
    module."""
    if options.handler is not None:
        from stoker.cli.predict.command import absolute

        return absolute(options.handler)
    told = str(case.get("handler", ""))
    if ".py:" not in told and ":" in told:
        return told
    if (file := config_file(options.config)) is not None:
        from stoker.control.config.config import load_config

        for declared in load_config(file).endpoints:
            if declared.id == case["endpoint"] and ".py:" in declared.imageName:
                return declared.imageName.removeprefix("local:")
    raise CliError(f"where is the handler of endpoint {case['endpoint']}? Give it: --handler FILE.py:NAME")


# ---- the run --------------------------------------------------------------------------------------


def _plan(
    case: dict[str, Any], handler: str, files: list[Found], options: Replay, folder: Path
) -> dict[str, Any]:
    given: Any = case.get("input")
    if (seed := reported_seed(case)) is not None:
        _say(f"seed {seed}, as the job reported")
        given = {**given, "seed": seed}
    saved = None if options.from_start else case.get("saved")
    if saved is not None:
        _say(f"from the last save, which covers {saved['upto']} chunks; --from-start begins anew")
    return {
        "handler": handler,
        "input": given,
        "saved": saved,
        "files": {one.url: one.path for one in files},
        "network": options.fetch,
        "until": options.until,
        "out": str(options.out.absolute()),
        "use_gpu": options.use_gpu,
        "result": str(folder / "result.json"),
    }


def _run_child(plan: dict[str, Any], limit_s: float) -> Run:
    """Runs the plan in a process of its own, which is killed where the job's time is over."""
    result = Path(plan["result"])
    file, (begins, closed_when_it_begins) = result.with_name("plan.json"), os.pipe()
    file.write_text(json.dumps({**plan, "begins": closed_when_it_begins}))
    command = [sys.executable, "-P", "-m", "stoker.cli.replay.child", str(file)]
    with open(begins, "rb", buffering=0) as beginning:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                pass_fds=[closed_when_it_begins],
            )
        finally:
            os.close(closed_when_it_begins)
        ended = _wait(process, beginning, limit_s)
    if ended is not None:
        return ended
    if process.returncode == REFUSED:
        raise CliError("the job cannot be run here; the sentence above says why")
    if not result.is_file():
        return Run("died", f"the process ended by itself, {_status(process.returncode)}")
    told = json.loads(result.read_text())
    return Run(told["ended"], told["error"], told["facts"])


def _wait(process: subprocess.Popen[bytes], beginning: BinaryIO, limit_s: float) -> Run | None:
    """Waits until the process begins with its job, and for its end; kills the process after the limit, and
    when this one is interrupted."""
    try:
        beginning.read(1)
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return Run("timed_out", f"it was killed after {limit_s:g} s, the job's limit")
    finally:
        process.kill()
        process.wait()
    return None


def _status(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with status {status}"


# ---- the verdict ----------------------------------------------------------------------------------


def _found(stoker: Client, case: dict[str, Any], ended: Run, folder: Path, options: Replay) -> Verdict:
    if options.compare is None:
        return verdict(case, ended)
    if options.compare == THE_JOB:
        return _compared_with_job(stoker, case, ended, folder / "job", options)
    return _compared(Path(options.compare), options.out, ended)


def _compared_with_job(
    stoker: Client, case: dict[str, Any], ended: Run, given: Path, options: Replay
) -> Verdict:
    """Returns whether the replay ended as the job did, and gave the same chunks and the same output."""
    found = verdict(case, ended)
    if not found.same or ended.ended in ("timed_out", "died"):
        return found
    download_results(stoker, case["endpoint"], case["id"], given)
    difference = first_difference_from_job(given, options.out).replace(str(given), "the job")
    return Verdict(not difference, difference or f"{found.reason}; what the job gave is equal")


def _compared(other: Path, out: Path, ended: Run) -> Verdict:
    if ended.ended != "returned":
        return Verdict(False, f"there is no output to compare: {ended.error.partition(os.linesep)[0]}")
    found = first_difference(other, out)
    return Verdict(not found, found or f"the output is equal to that in {other}")


def _print(found: Verdict, unlike: list[Difference], files: list[Found], ended: Run, options: Replay) -> None:
    if options.as_json:
        record = {
            "job": options.job,
            "same": found.same,
            "reason": found.reason,
            "ended": ended.ended,
            "error": ended.error,
            "differences": [str(one) for one in unlike],
            "missingFiles": {one.url: one.missing for one in files if one.missing},
        }
        print_text(json_text(record, indent=sys.stdout.isatty()))
        return
    if ended.error and not found.same:
        _say(ended.error)
    print_text(f"{'the same' if found.same else 'not the same'}: {found.reason}")


def _say(text: str) -> None:
    print_text(text, to_stderr=True)
