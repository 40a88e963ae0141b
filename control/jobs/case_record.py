"""The case of a job that failed or completed, as its reader gets it, without secrets. Pure.

    {"id", "endpoint", "version", "attempt", "status", "error", "input", "files", "raised", "source",
     "python", "libraries", "cuda", "devices", "node", "weights", "environment", "saved", …}

The names of environment variables are there, and no value. Of each URL, in the input and in the error, user,
query and fragment are left out, since any of the three may be a signature. What is not known is absent.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import Struct
from pydantic_core import from_json

from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import EndpointVersion, JobView
from stoker.control.store.jobs.cases import StoredCase

_URL = re.compile(r"([a-z][a-z0-9+.-]*://)([^\s\"'<>\\]+)", re.IGNORECASE)
_NOTED = (
    *("python", "system", "libraries", "cuda", "source", "environment", "settings"),
    *("scratch", "files", "raised"),
)
FORMAT = 1
"""The version of the record; a reader refuses a later one."""


class Payloads(Struct, frozen=True):
    """The JSON text of the job's input, and its last save; None where the job had none."""

    input: bytes | None
    saved: bytes | None


def case_record(view: JobView, case: StoredCase, payloads: Payloads) -> dict[str, Any]:
    """Returns the record of a case."""
    found: dict[str, Any] = {
        "case": FORMAT,
        "id": view.id,
        "endpoint": view.endpoint,
        "version": case.version,
        "attempt": case.attempt,
        "status": view.state.value,
        "createdAt": round(view.created_at * 1000),
        "error": without_secrets(view.error),
        "input": without_secrets(_parsed(payloads.input)),
        "progress": without_secrets(_parsed(case.progress)),
        "executionTimeoutMs": case.timeout_ms,
        "worker": case.worker,
        "node": {"name": case.node, **case.facts.get("node", {})},
        "devices": case.facts.get("devices"),
        **_noted(case.noted),
        **({} if case.run is None else _run(case.run)),
        "saved": _saved(case.saved_upto, payloads.saved),
    }
    return {name: value for name, value in found.items() if value is not None}


def why_no_case(view: JobView, *, keeps: bool) -> str:
    """Returns why there is no case of this job, and what to do. `keeps`: its endpoint keeps cases now."""
    if view.state in (JobState.IN_QUEUE, JobState.IN_PROGRESS, JobState.CANCELLED):
        return (
            f"job {view.id!r} is {view.state.value}: there are cases of jobs that are FAILED, TIMED_OUT or"
            " COMPLETED"
        )
    if not keeps and view.state is JobState.COMPLETED:
        return (
            f"endpoint {view.endpoint!r} keeps no cases: set its keepCases to true;"
            " jobs that have completed have one then"
        )
    if not keeps:
        return (
            f"endpoint {view.endpoint!r} keeps no cases: set its keepCases to true;"
            " jobs that fail from then on have one"
        )
    return (
        f"job {view.id!r} has no case: it failed before its endpoint kept cases, or no node reported its end"
    )


def _parsed(text: bytes | None) -> Any:
    return None if text is None else from_json(text)


def _noted(noted: bytes) -> dict[str, Any]:
    """Returns what the worker noted, of the fields that are known here."""
    told = orjson.loads(noted) if noted else {}
    return {name: told[name] for name in _NOTED if isinstance(told, dict) and name in told}


def _run(run: EndpointVersion) -> dict[str, Any]:
    """Returns what the version runs. The names of its variables are those that its author has set."""
    fields: dict[str, Any] = {"handler": run.handler or None, "image": run.image or None}
    fields["concurrency"] = run.concurrency
    weights = [{"name": one.name, "commit": one.commit, "key": one.key} for one in run.weights]
    return {**fields, "declaredEnvironment": sorted(run.env), "weights": weights or None}


def _saved(upto: int | None, state: bytes | None) -> dict[str, Any] | None:
    if upto is None or state is None:
        return None
    body = base64.b64encode(state).decode()
    return {"upto": upto, "sha256": hashlib.sha256(state).hexdigest(), "body": body}


def without_secrets(value: Any) -> Any:
    """Returns the JSON value with each URL in a text cut down to its scheme, host and path."""
    match value:
        case str():
            return _URL.sub(lambda found: found[1] + _bare(found[2]), value)
        case list():
            return [without_secrets(item) for item in value]
        case Mapping():
            return {name: without_secrets(item) for name, item in value.items()}
    return value


def _bare(rest: str) -> str:
    path = rest.partition("#")[0].partition("?")[0]
    host, slash, below = path.partition("/")
    return host.rpartition("@")[2] + slash + below
