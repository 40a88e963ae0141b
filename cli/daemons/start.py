"""The start of control and of the agent from their options: in this process, or in its place.

    stoker up ─── command ──────────────────────────────┐
                                                        ├──> python -m stoker.cli.daemons ── run
    stoker control, stoker agent ── options ── become ──┘

A process that runs for weeks has no use for the parser of the command line, which is 0.1 s of its start and
up to a tenth of its memory.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import NoReturn

from stoker.cli.daemons.options import ControlOptions, Options, arguments_of
from stoker.cli.log_lines import Format, Level, log_lines
from stoker.cli.processes.imports import uncollected
from stoker.cli.processes.parents import end_with_parent
from stoker.cli.processes.readiness import MANAGER


def command(options: Options) -> tuple[str, ...]:
    """Returns the command of a process that runs these options. -P keeps the current folder off its import
    path."""
    return (sys.executable, "-P", "-m", "stoker.cli.daemons", *arguments_of(options))


def become(options: Options) -> NoReturn:
    """Replaces this process by one that runs these options. It has the same pid, environment and
    descriptors."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the process after it inherits this
    os.execv(sys.executable, command(options))


def run(options: Options) -> None:
    """Runs control or the agent in this process."""
    variables = prepare(options.log_format, options.log_level)
    if isinstance(options, ControlOptions):
        with uncollected():
            from stoker.cli.control.process import run as run_control

        run_control(options, variables)
        return
    # A worker of another user is started by fork, not vfork, and gRPC's fork handlers crash the child (seen:
    # SIGSEGV before its exec). gRPC reads this variable when it is imported.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    with uncollected():
        from stoker.cli.agent.process import run as run_agent

    token = options.join_token or variables.get("STOKER_JOIN_TOKEN") or None
    run_agent(replace(options, join_token=token), variables)


def prepare(log_format: str, log_level: str) -> dict[str, str]:
    """Prepares this process: it ends with its parent, speaks for itself to the service manager, and logs to
    stderr. Removes the STOKER_ variables from the environment, so that children do not inherit secrets, and
    returns them."""
    from stoker.cli.control.s3_settings import take_secrets
    from stoker.cli.processes.proc_environ import wipe_variables

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the process is there that reads files again then
    MANAGER.adopt(os.environ)
    end_with_parent(os.environ)
    log_lines(Format(log_format), Level(log_level))
    variables = take_secrets(os.environ)
    wipe_variables("STOKER_")
    return variables
