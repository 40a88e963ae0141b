"""Endpoints in the store. What a worker runs is a version: fixed data, and a new one only when it changes.

The whole of a version is sealed, since its environment may hold secrets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace
from sqlalchemy import bindparam, insert, select, update

from stoker.control.rules.job_states import JobState
from stoker.control.rules.needs import Needs
from stoker.control.rules.quotas import Quota
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.jobs import jobs
from stoker.control.store.tables.resources import endpoint_versions, endpoints
from stoker.wire.messages import LockedWeights, Price, RegistryAuth, WeightsFile, WorkerLimits


def put_endpoint(conn: Conn, endpoint: Endpoint, now: float, *, anew: bool = False) -> Endpoint:
    """Stores an endpoint under its id, and returns the stored one: its `version` is drawn here, by what the
    database has then.

    `anew`: the version is a new one even where the same is run.
    """
    # A lock of its own: read together, the version would be of before the wait for another change.
    conn.execute(select(endpoints.c.id).where(endpoints.c.id == endpoint.id).with_for_update())
    latest = _latest(conn, endpoint.id)
    version, run, created_at = (0, None, now) if latest is None else latest
    changed = anew or run != endpoint.run
    stored = replace(endpoint, version=version + changed, created_at=created_at)
    row = _row(stored, now)
    if latest is None:
        conn.execute(insert(endpoints), row)
    else:
        conn.execute(update(endpoints).where(endpoints.c.id == endpoint.id).values(**row))
    if changed:
        _put_version(conn, stored, now)
    return stored


def _row(endpoint: Endpoint, now: float) -> dict[str, Any]:
    return {
        "id": endpoint.id,
        "account": endpoint.account,
        "name": endpoint.name,
        "version": endpoint.version,
        "hosted": int(endpoint.hosted),
        "workers_min": endpoint.workers_min,
        "workers_max": endpoint.workers_max,
        "idle_timeout_s": endpoint.idle_timeout_s,
        "execution_timeout_ms": endpoint.execution_timeout_ms,
        "ttl_ms": endpoint.ttl_ms,
        "max_attempts": endpoint.max_attempts,
        "handler_retries": endpoint.handler_retries,
        "enabled": 1,
        "changed_at": now,
        "origin": endpoint.origin,
        "type": endpoint.type,
        "scaler_type": endpoint.scaler_type,
        "scaler_value": endpoint.scaler_value,
        "template": endpoint.template,
        "asked": json.dumps(endpoint.requested),
        "created_at": endpoint.created_at,
        "quota": endpoint.quota.stored(),
        "keep_cases": int(endpoint.keep_cases),
        "api_key": endpoint.api_key,
    }


def _put_version(conn: Conn, endpoint: Endpoint, now: float) -> None:
    run = conn.secrets.seal(json.dumps(to_builtins(endpoint.run)).encode())
    conn.execute(
        insert(endpoint_versions),
        {"endpoint": endpoint.id, "version": endpoint.version, "run": run, "created_at": now},
    )


def _latest(conn: Conn, endpoint: str) -> tuple[int, EndpointVersion, float] | None:
    row = conn.execute(_joined().where(endpoints.c.id == endpoint)).first()
    return None if row is None else (row.version, _open(conn, row.run), row.created_at)


_RUN = select(endpoint_versions.c.run).where(
    endpoint_versions.c.endpoint == bindparam("endpoint"), endpoint_versions.c.version == bindparam("version")
)


def run_of(conn: Conn, endpoint: str, version: int) -> EndpointVersion | None:
    """Returns what this version of the endpoint runs; None if there is no such version."""
    sealed = conn.execute(_RUN, {"endpoint": endpoint, "version": version}).scalar()
    return None if sealed is None else _open(conn, sealed)


def _joined() -> Any:
    return select(endpoints, endpoint_versions.c.run).join(
        endpoint_versions,
        (endpoint_versions.c.endpoint == endpoints.c.id)
        & (endpoint_versions.c.version == endpoints.c.version),
    )


def _open(conn: Conn, sealed: bytes) -> EndpointVersion:
    fields = json.loads(conn.secrets.open(sealed))
    prices = tuple(Price(**price) for price in fields.pop("prices"))
    preload, command = (tuple(fields.pop(name, ())) for name in ("preload", "command"))
    entrypoint = tuple(fields.pop("entrypoint", ()))
    limits, registry = fields.pop("limits", None), fields.pop("registry", None)
    weights = tuple(map(_weights, fields.pop("weights", ())))
    needs = {name: _tupled(value) for name, value in fields.pop("needs", {}).items()}
    return EndpointVersion(
        **fields,
        prices=prices,
        preload=preload,
        command=command,
        entrypoint=entrypoint,
        limits=WorkerLimits(**limits) if limits else None,
        registry=RegistryAuth(**registry) if registry else None,
        needs=Needs(**needs),
        weights=weights,
    )


def _weights(fields: Mapping[str, Any]) -> LockedWeights:
    return LockedWeights(**{**fields, "files": tuple(WeightsFile(**file) for file in fields["files"])})


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def list_endpoints(conn: Conn) -> tuple[Endpoint, ...]:
    """Returns all endpoints that take submissions, of every account."""
    rows = conn.execute(_joined().where(endpoints.c.enabled == 1).order_by(endpoints.c.id))
    return tuple(_endpoint(conn, row) for row in rows)


def list_runs(conn: Conn, newest: int) -> dict[str, dict[int, EndpointVersion]]:
    """Returns what the newest versions of every endpoint run, by number: earlier versions may have workers,
    too."""
    versions = select(endpoint_versions).join(endpoints, endpoint_versions.c.endpoint == endpoints.c.id)
    late = endpoints.c.version - endpoint_versions.c.version < newest
    runs: dict[str, dict[int, EndpointVersion]] = {}
    for row in conn.execute(versions.where(endpoints.c.enabled == 1, late)):
        runs.setdefault(row.endpoint, {})[row.version] = _open(conn, row.run)
    return runs


def read_version(conn: Conn, endpoint: str, version: int) -> EndpointVersion | None:
    """Returns what this version of the endpoint runs; None where it is not known."""
    found = select(endpoint_versions.c.run).where(
        endpoint_versions.c.endpoint == endpoint, endpoint_versions.c.version == version
    )
    sealed = conn.execute(found).scalar()
    return None if sealed is None else _open(conn, sealed)


GONE = "gone"
"""The origin of an endpoint of the configuration file that was deleted for good."""


def remove_endpoint(conn: Conn, endpoint: str, now: float, *, for_good: bool = False) -> bool:
    """Disables an endpoint, which then takes no more submissions; its jobs and its bills stay. `put_endpoint`
    takes it back. Returns False where there was none. `for_good`: `deleted_endpoints` names it, although the
    configuration file had declared it."""
    origin = {"origin": GONE} if for_good else {}
    ended = (
        update(endpoints)
        .where(endpoints.c.id == endpoint, endpoints.c.enabled == 1)
        .values(enabled=0, changed_at=now, **origin)
    )
    return conn.execute(ended).rowcount > 0


def deleted_endpoints(conn: Conn) -> tuple[str, ...]:
    """Returns the ids of endpoints that callers made and deleted, or that were deleted for good, where jobs
    have not ended yet."""
    open_jobs = select(jobs.c.seq).where(
        jobs.c.endpoint == endpoints.c.id, jobs.c.state.in_([JobState.IN_QUEUE, JobState.IN_PROGRESS])
    )
    gone = select(endpoints.c.id).where(
        endpoints.c.enabled == 0, endpoints.c.origin.in_(["api", GONE]), open_jobs.exists()
    )
    return tuple(conn.execute(gone).scalars())


def _endpoint(conn: Conn, row: Any) -> Endpoint:
    return Endpoint(
        id=row.id,
        account=row.account,
        name=row.name,
        version=row.version,
        run=_open(conn, row.run),
        hosted=bool(row.hosted),
        workers_min=row.workers_min,
        workers_max=row.workers_max,
        idle_timeout_s=row.idle_timeout_s,
        execution_timeout_ms=row.execution_timeout_ms,
        ttl_ms=row.ttl_ms,
        max_attempts=row.max_attempts,
        handler_retries=row.handler_retries,
        origin=row.origin,
        type=row.type,
        scaler_type=row.scaler_type,
        scaler_value=row.scaler_value,
        template=row.template,
        requested=json.loads(row.asked),
        created_at=row.created_at,
        quota=Quota.parse(row.quota),
        keep_cases=bool(row.keep_cases),
        api_key=row.api_key,
    )
