"""The schemas of endpoints whose handler declares what it takes, as that of a pipeline does.

    handler's file ──a process imports it──> declared ──inputSchema narrows it──> the endpoint's schema

Control never imports a user's file into itself. A file is imported only if it names `stoker.models`, on
control's host, in a process without control's variables, for READ_S at most. If what it declares cannot be
known, the log says why, and the endpoint has the schema of stoker.toml alone.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

import stoker
from stoker.cli.errors import CliError
from stoker.cli.processes.parents import VARIABLE as PARENT
from stoker.control.config.sections import check_schema
from stoker.control.rules.inputs.narrowing import NotNarrower, narrowed
from stoker.control.rules.types import Endpoint

log = logging.getLogger(__name__)

READ_S: Final = 30.0
"""How long the import of a file may take; that of torch takes some seconds."""

AT_ONCE: Final = 4
"""Files that are imported at once."""

ANSWER_BYTES: Final = 1 << 20


class NotKnown(Exception):
    """The schema that a handler declares cannot be known; the message says why."""


def with_schemas(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Returns the endpoints, of which those with a handler that declares its inputs have their schema. Raises
    CliError for a schema of the file that is wider."""
    asked = [one for one in endpoints if _may_declare(one)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        declared = dict(zip((one.id for one in asked), pool.map(_declared, asked), strict=True))
    return [_narrowed(one, declared.get(one.id)) for one in endpoints]


def _narrowed(endpoint: Endpoint, declared: Mapping[str, Any] | None) -> Endpoint:
    if declared is None:
        return endpoint
    try:
        schema = narrowed(declared, endpoint.run.schema or {})
    except NotNarrower as error:
        raise CliError(f"inputSchema of endpoint {endpoint.id}: {error}") from None
    return replace(endpoint, run=replace(endpoint.run, schema=schema))


def _may_declare(endpoint: Endpoint) -> bool:
    run = endpoint.run
    file = run.handler.rpartition(":")[0]
    if endpoint.hosted or run.kind != "python" or run.image or not file.endswith(".py"):
        return False
    try:
        return b"stoker.models" in Path(file).read_bytes()
    except OSError:
        return False  # its workers say so


def _declared(endpoint: Endpoint) -> Mapping[str, Any] | None:
    try:
        return _checked(_answer(endpoint))
    except NotKnown as why:
        log.warning(
            "endpoint %s: what inputs its handler takes is not known: %s; only its inputSchema is checked"
            " before a job is queued",
            *(endpoint.id, why),
        )
        return None


def _checked(answer: bytes) -> Mapping[str, Any] | None:
    """Returns the schema of an answer; None if the handler declares none. Raises NotKnown."""
    try:
        found = json.loads(answer.strip().rpartition(b"\n")[2])  # C may have printed before
        error, schema = found.get("error"), found.get("schema")
    except (ValueError, AttributeError):
        raise NotKnown(f"its process ended and answered {answer[:100]!r}") from None
    if error is not None:
        raise NotKnown(str(error))
    if schema is None:
        return None
    if not isinstance(schema, dict):
        raise NotKnown(f"input_schema() must return an object, got {answer[:100]!r}")
    try:
        check_schema(schema)
    except ValueError as wrong:
        raise NotKnown(f"input_schema(): {wrong}") from None
    return schema


def _answer(endpoint: Endpoint) -> bytes:
    """Returns what the process printed. All that it started ends with it. Raises NotKnown."""
    handler, env = endpoint.run.handler, _environment(endpoint)
    command = [sys.executable, "-P", "-m", "stoker.cli.control.schema_process", handler]
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(
                command,
                env=env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotKnown(f"{handler} cannot be imported: {error}") from None
        try:
            process.wait(READ_S)
        except subprocess.TimeoutExpired:
            raise NotKnown(f"the import of {handler} took over {READ_S:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        return out.read(ANSWER_BYTES)


def _environment(endpoint: Endpoint) -> dict[str, str]:
    """Returns the endpoint's own variables and what its interpreter needs, nothing of control's."""
    package = str(Path(stoker.__file__).parents[1])
    search = filter(None, (package, endpoint.run.env.get("PYTHONPATH", "")))
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        **endpoint.run.env,
        "PYTHONPATH": os.pathsep.join(search),
        "PYTHONDONTWRITEBYTECODE": "1",
        PARENT: str(os.getpid()),
    }
