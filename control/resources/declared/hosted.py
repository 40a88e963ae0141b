"""Changes of hosted endpoints by the API: their workers and the time limit of their jobs. Pure.

    declared: models, STOKER_PIPELINE, [hosted.ID] ─┬─> the endpoint as it is served
    changed by callers, unless the file sets it ────┘

The changes are stored as what was requested of the endpoint, so they outlive a restart of control.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from stoker.control.errors import BadRequest
from stoker.control.rules.limits import DEFAULT_EXECUTION_TIMEOUT_MS
from stoker.control.rules.quotas import Quota
from stoker.control.rules.types import Endpoint

FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "executionTimeoutMs": "execution_timeout_ms",
        "idleTimeout": "idle_timeout_s",
        "keepCases": "keep_cases",
        "quota": "quota",
        "scalerType": "scaler_type",
        "scalerValue": "scaler_value",
        "workersMax": "workers_max",
        "workersMin": "workers_min",
    }
)
"""The fields that callers can change, and their names in an Endpoint."""


def check(endpoint: Endpoint, changes: Mapping[str, Any], by_file: Collection[str]) -> None:
    """Raises BadRequest for a field that callers cannot change. `by_file` are those that the file sets."""
    for name in changes:
        if name not in FIELDS:
            raise BadRequest(
                f"endpoint {endpoint.id} is a hosted model: {', '.join(FIELDS)} can be changed; {name} is"
                f" decided by STOKER_PIPELINE and by [hosted.{endpoint.id}] of the configuration file"
            )
        if name in by_file:
            raise BadRequest(
                f"[hosted.{endpoint.id}] of the configuration file sets {name}; only the file can change it"
            )
    made = with_changes(endpoint, {**endpoint.requested, **changes})
    if made.workers_min > made.workers_max:
        raise BadRequest(
            f"workersMin must be at most workersMax; got {made.workers_min} and {made.workers_max}"
        )


def with_changes(declared: Endpoint, changes: Mapping[str, Any]) -> Endpoint:
    """Returns the endpoint with these changes."""
    fields = {FIELDS[name]: value for name, value in changes.items()}
    if "quota" in fields:
        fields["quota"] = Quota.of(fields["quota"] or {})
    if fields.get("execution_timeout_ms") == 0:
        fields["execution_timeout_ms"] = DEFAULT_EXECUTION_TIMEOUT_MS
    return replace(declared, **fields, requested=dict(changes))


def as_before(declared: Endpoint, before: Endpoint, by_file: Collection[str]) -> Endpoint:
    """Returns a declared endpoint with the changes that callers had made before, but for the fields that the
    file sets now."""
    changes = {name: value for name, value in before.requested.items() if name in FIELDS}
    found = with_changes(declared, {name: value for name, value in changes.items() if name not in by_file})
    return replace(found, workers_min=min(found.workers_min, found.workers_max))
