"""The stock Python SDK's functions for pods, endpoints, templates and the rest: any, by its name.

The folder that is given stands before all others: in it is another version of the SDK.
"""

import os
import sys
from typing import Any

import conversation

sys.path[:0] = sys.argv[1:]
conversation.stay_on_loopback()

import runpod  # noqa: E402

runpod.api_key = os.environ["RUNPOD_API_KEY"]  # version 1 reads it from a file


def call(function: str, given: dict[str, Any]) -> Any:
    return getattr(runpod, function)(**given)


def version() -> str:
    found: str = runpod.__version__
    return found


def rp(arguments: list[str]) -> dict[str, Any]:
    """The command line of version 2, in this process."""
    from click.testing import CliRunner
    from runpod.rp_cli import main

    ended = CliRunner().invoke(main.cli, arguments)
    return {"exit": ended.exit_code, "said": ended.output, "why": repr(ended.exception)}


conversation.converse({"call": call, "rp": rp, "version": version})
