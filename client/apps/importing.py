"""The definition of an endpoint as importing its module makes it, for options that are computed.

The module runs in a process of its own, so neither its state nor what it breaks stays here: `python -P -m
stoker.client.apps.importing ROOT FOLDER MODULE TARGET` prints the definition as the last line of its output.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from stoker.client.apps.declaration import Declaration
from stoker.client.apps.definition import MARK, Definition
from stoker.client.apps.scanned import Endpoint

TIMEOUT_S = 60.0
_OUTPUT_MAX = 4000


class ImportFailed(Exception):
    """The module cannot be imported; the message is the end of what it printed."""


def definition(
    root: Path, endpoint: Endpoint, *, python: str = sys.executable, timeout_s: float = TIMEOUT_S
) -> Definition:
    """Imports the endpoint's module in a new process. Raises ImportFailed."""
    arguments = [str(root.resolve()), endpoint.folder, endpoint.module, endpoint.target]
    command = [python, "-P", "-m", "stoker.client.apps.importing", *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=root,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise ImportFailed(f"{endpoint.path} was still being imported after {timeout_s:g} s") from None
    if done.returncode != 0:
        raise ImportFailed(f"{endpoint.path} cannot be imported:\n{done.stderr[-_OUTPUT_MAX:].rstrip()}")
    try:
        return Definition.from_json(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, KeyError, TypeError, ValueError):
        printed = done.stdout[-_OUTPUT_MAX:].rstrip() or "nothing"
        raise ImportFailed(
            f"{endpoint.path} did not let its options be read; they are printed last when it is imported, and"
            f" it printed {printed}"
        ) from None


def main(root: str, folder: str, module: str, target: str) -> None:
    sys.path[:0] = [root, os.path.join(root, folder)] if folder else [root]
    found: Any = getattr(importlib.import_module(module), target)
    declared = found.definition if isinstance(found, Declaration) else getattr(found, MARK)
    print(json.dumps(declared.as_json()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
