"""The tables, once, for SQLite and PostgreSQL alike. What may be asked of them is `control.store`.

Times are seconds since the epoch, set by the caller. `seq` orders jobs; children hang on it and go with
their job. Bills (`spans`), `artifacts` and `counters` outlive jobs. `jobs` rows stay small: whatever may
be large is a row of its own, since changing the state of a row that holds 1 MB costs milliseconds.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    REAL,
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

SCHEMA_VERSION = 9

metadata = MetaData()

# STRICT tables of SQLite know five types only.
_INT = BigInteger().with_variant(Integer(), "sqlite")
_TIME: TypeEngine[float] = Double().with_variant(REAL(), "sqlite")


def _table(name: str, *parts: Any) -> Table:
    return Table(name, metadata, *parts, sqlite_strict=True)


def _int(name: str, default: int | None = None) -> Column[int]:
    if default is None:
        return Column(name, _INT, nullable=False)
    return Column(name, _INT, nullable=False, server_default=str(default))


def _text(name: str, *parts: Any) -> Column[str]:
    return Column(name, Text, *parts, nullable=False)


def _text_default(name: str, default: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default=default)


def _time(name: str) -> Column[float]:
    return Column(name, _TIME, nullable=False)


def _job(**options: Any) -> Column[int]:
    """The job that a row goes with."""
    return Column("seq", _INT, ForeignKey("jobs.seq", ondelete="CASCADE"), nullable=False, **options)


def _ref() -> tuple[Column[Any], ...]:
    """Where a payload over 1 MB lies."""
    return Column("ref_key", Text), Column("ref_size", _INT), Column("ref_sha256", Text)


def _account() -> Column[str]:
    return _text("account", ForeignKey("accounts.id"))


meta = _table("meta", Column("name", Text, primary_key=True), Column("value", LargeBinary, nullable=False))

accounts = _table("accounts", Column("id", Text, primary_key=True), _time("created_at"))

keys = _table(
    "keys",
    Column("id", Text, primary_key=True),
    _account(),
    _text("kind"),  # key, join, node
    _text("name"),
    Column("hash", LargeBinary, nullable=False),
    _time("created_at"),
    Column("expires_at", _TIME),
    Column("revoked_at", _TIME),
    _text_default("access", "{}"),  # JSON: control.rules.access
    Column("last_used_at", _TIME),
    Column("uses_left", _INT),  # of a join token; NULL: any number
)

audit = _table(  # requests to the management API, and their keys
    "audit",
    Column("n", _INT, primary_key=True, autoincrement=True),
    _account(),
    _text("key"),
    _time("at"),
    _text("method"),
    _text("path"),
    Column("status", _INT),  # NULL: not answered yet
    _text("said"),  # the sentence of a refusal
)
Index("audit_at", audit.c.at)

templates = _table(
    "templates",
    Column("id", Text, primary_key=True),
    _account(),
    _text("name"),
    Column("body", LargeBinary, nullable=False),  # sealed JSON: its env may hold secrets
    _time("created_at"),
    _time("changed_at"),
    Column("deleted_at", _TIME),
)
Index("templates_account", templates.c.account)

volumes = _table(
    "volumes",
    Column("id", Text, primary_key=True),
    _account(),
    _text("name"),
    _text("data_center"),
    _int("size_gb"),
    _time("created_at"),
    Column("used_bytes", _INT),
    Column("measured_at", _TIME),
    Column("deleted_at", _TIME),
    _time("billed_to"),
)
Index("volumes_account", volumes.c.account)

registries = _table(
    "registries",
    Column("id", Text, primary_key=True),
    _account(),
    _text("name"),
    Column("login", LargeBinary, nullable=False),  # sealed JSON: username, password
    _time("created_at"),
)
Index("registries_account", registries.c.account)

secrets = _table(
    "secrets",
    _account(),
    _text("name"),
    Column("value", LargeBinary, nullable=False),  # sealed
    _time("created_at"),
    _time("changed_at"),
    PrimaryKeyConstraint("account", "name"),
)

pods = _table(
    "pods",
    Column("id", Text, primary_key=True),
    _account(),
    _text("name"),
    _text("wish"),  # RUNNING, EXITED, TERMINATED
    _int("version"),
    _int("restarts", 0),
    Column("body", LargeBinary, nullable=False),  # sealed JSON: the request
    _text("node"),  # "": none yet
    _text("devices"),  # JSON: their uuids
    _text("gpu_type"),  # their name; "": none
    _text("seen"),  # JSON: what its node last reported of its container
    _time("created_at"),
    _time("changed_at"),
    _text("change"),  # in words, what happened then
    Column("started_at", _TIME),
    Column("ended_at", _TIME),
    _int("forgotten", 0),  # its node has nothing of it any more
    _int("revision", 0),  # counts what was stored of it
    _time("billed_to"),
)
Index("pods_account", pods.c.account, pods.c.forgotten)
Index("pods_node", pods.c.node, pods.c.forgotten)

endpoints = _table(
    "endpoints",
    Column("id", Text, primary_key=True),
    _account(),
    _text("name"),
    _int("version"),
    _int("hosted"),
    _int("workers_min"),
    _int("workers_max"),
    _int("idle_timeout_s"),
    _int("execution_timeout_ms"),
    _int("ttl_ms", 86_400_000),
    _int("max_attempts", 3),
    _int("handler_retries", 0),
    _int("enabled", 1),
    _time("changed_at"),
    _text("origin"),  # file, api
    _text("type"),  # QUEUE, LOAD_BALANCER
    _text("scaler_type"),
    _int("scaler_value"),
    _text("template"),  # "": none
    _text("asked"),  # JSON: the request to the management API, to be returned again
    _time("created_at"),
)

endpoint_versions = _table(
    "endpoint_versions",
    _text("endpoint", ForeignKey("endpoints.id")),
    _int("version"),
    Column("run", LargeBinary, nullable=False),  # sealed: its env may hold secrets
    _time("created_at"),
    PrimaryKeyConstraint("endpoint", "version"),
)

nodes = _table(
    "nodes",
    Column("id", Text, primary_key=True),
    _text("name"),
    _text("boot"),
    _int("session"),
    _int("alive"),
    _time("seen_at"),
    _time("opened_at"),
    _text("devices"),  # JSON
    _text("facts"),  # JSON
    _text_default("account", "default"),
    _int("drained", 0),  # an operator wants no work there
    _text_default("join_key", ""),  # the token that it joined with
    _text_default("credential", ""),  # the id of what it comes back with
)

given_workers = _table(  # what nodes were told to run: they are believed about nothing else
    "given_workers",
    Column("worker", Text, primary_key=True),
    _text("node"),
    _text("endpoint"),
    _int("version"),
    _int("slots"),
    _text("devices"),  # JSON: their uuids
    Column("taken_at", _TIME),  # when it was wanted no more
)
Index("given_workers_node", given_workers.c.node)
Index("given_workers_taken", given_workers.c.taken_at)

jobs = _table(
    "jobs",
    Column("seq", _INT, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    _account(),
    _text("endpoint", ForeignKey("endpoints.id")),
    _text("state"),
    _int("rank"),  # 0 retry, 1 normal, 2 retry of low priority, 3 low priority
    _time("not_before"),
    _time("created_at"),
    _time("expires_at"),
    _time("ttl_at"),  # the hard limit; expires_at is never later
    _time("retention_s"),
    Column("claimed_at", _TIME),
    Column("ended_at", _TIME),
    _int("sync"),
    _int("low"),
    _int("execution_timeout_ms"),
    Column("webhook", Text),
    _int("own_bucket", 0),  # uploads go to the caller's bucket, which is not ours to tidy
    _int("attempt", 0),
    _int("max_attempts", 3),
    _int("handler_retries", 0),
    _int("failures", 0),
    _int("handler_failures", 0),
    _int("refused", 0),
    _int("backoffs", 0),  # refusals after which it had to wait: others handed it back for another worker
    _int("given_before", 0),  # how often it was given out before its caller's last retry
    _int("first_attempt", 1),  # the first since then: what earlier ones left was noted already
    Column("reason", Text),  # why the last attempt failed, or why it was cancelled
    _int("suspect", 0),  # requeued because its node was lost: counts once it is claimed again
    _int("uploading", 0),
    Column("node", Text),  # the node that may still end the current attempt
    Column("worker", Text),
    Column("delay_ms", _INT),
    Column("execution_ms", _INT),
)

Index(
    "jobs_queue",
    jobs.c.endpoint,
    jobs.c.rank,
    jobs.c.not_before,  # those that back off stand at the end of their rank, where no claim reads them
    jobs.c.seq,
    sqlite_where=text("state = 'IN_QUEUE'"),
    postgresql_where=text("state = 'IN_QUEUE'"),
)
Index(
    "jobs_held",
    jobs.c.node,
    jobs.c.state,
    jobs.c.endpoint,
    sqlite_where=text("node IS NOT NULL"),
    postgresql_where=text("node IS NOT NULL"),
)
Index("jobs_expiry", jobs.c.expires_at)
Index("jobs_listed", jobs.c.endpoint, jobs.c.seq)

inputs = _table(
    "inputs", _job(primary_key=True), Column("body", LargeBinary), *_ref(), Column("s3", LargeBinary)
)

results = _table(
    "results", _job(primary_key=True), Column("output", LargeBinary), *_ref(), Column("error", Text)
)

progress = _table("progress", _job(primary_key=True), _int("attempt"), Column("value", LargeBinary))

chunks = _table(
    "chunks",
    _job(),
    _int("attempt"),
    _int("n"),
    Column("value", LargeBinary, nullable=False),
    *_ref(),
    PrimaryKeyConstraint("seq", "attempt", "n"),
)
Index(  # so that the end of a job need not read through its chunks
    "chunks_spilled",
    chunks.c.seq,
    chunks.c.ref_key,
    sqlite_where=text("ref_key IS NOT NULL"),
    postgresql_where=text("ref_key IS NOT NULL"),
)

cursors = _table(
    "cursors",
    _job(primary_key=True),
    _int("attempt"),
    _int("n"),
    _int("told", 0),  # the end was reported to pollers
)

logs = _table(
    "logs",
    _job(),
    _int("attempt"),
    _text("worker"),
    _text("text"),
    _int("first_line", 0),  # how many lines of the attempt came before
    PrimaryKeyConstraint("seq", "attempt"),
)

idempotency = _table(
    "idempotency",
    _text("account"),
    _text("endpoint"),
    _text("key"),
    Column("fingerprint", LargeBinary, nullable=False),
    _text("job"),
    _time("expires_at"),
    PrimaryKeyConstraint("account", "endpoint", "key"),
)
Index("idempotency_expiry", idempotency.c.expires_at)

webhooks = _table(  # what is still to be delivered, as it was when the job ended
    "webhooks",
    Column("id", Text, primary_key=True),
    _text("job"),
    _account(),
    _text("url"),
    _text("receiver"),  # the host and port of it
    _text("state"),
    _int("tries", 0),
    _time("next_at"),
    _time("created_at"),
    _int("retries"),
    Column("worker", Text),
    Column("delay_ms", _INT),
    Column("execution_ms", _INT),
    Column("error", Text),
    Column("reason", Text),
    Column("input", LargeBinary),
    Column("input_key", Text),
    Column("input_size", _INT),
    Column("input_sha256", Text),
    Column("output", LargeBinary),
    Column("output_key", Text),
    Column("output_size", _INT),
    Column("output_sha256", Text),
)
Index("webhooks_due", webhooks.c.account, webhooks.c.next_at)
Index("webhooks_job", webhooks.c.job)

spans = _table(
    "spans",
    _text("job"),
    _int("attempt"),
    _text("kind"),
    _text("unit"),
    _text("account"),
    _text("endpoint"),
    _int("quantity"),
    _int("nano_usd"),
    _time("at"),
    PrimaryKeyConstraint("job", "attempt", "kind", "unit"),
)

usage = _table(  # what workers and pods held their devices for
    "usage",
    _text("owner"),
    _text("boot"),
    _int("n"),
    _text("account"),
    _text("kind"),  # worker, pod
    _text("resource"),  # the endpoint, the pod
    _text("state"),
    _text("gpu_type"),
    _int("devices"),
    _int("began_ms"),
    _int("ended_ms"),
    _int("billed_ms"),  # 0 where such time is free
    _int("nano_usd"),
    PrimaryKeyConstraint("owner", "boot", "n"),
)
Index("usage_began", usage.c.began_ms)

bills = _table(  # the hours' sums of usage, spans, disks and volumes
    "bills",
    _text("account"),
    _text("kind"),  # endpoint, pod, volume
    _int("hour"),  # since the epoch
    _text("resource"),
    _text("worker"),
    _text("gpu_type"),
    _text("data_center"),
    _text("image"),
    _text("template"),
    _int("billed_ms"),
    _int("nano_usd"),
    PrimaryKeyConstraint(
        "account", "kind", "hour", "resource", "worker", "gpu_type", "data_center", "image", "template"
    ),
)

spaces = _table(  # how large disks and volumes were from when to when, as far as that is billed
    "spaces",
    _text("account"),
    _text("kind"),  # pod, volume
    _text("resource"),
    _text("gpu_type"),  # of a pod
    _int("gb"),
    _time("began"),
    _time("ended"),
    PrimaryKeyConstraint("kind", "resource", "began"),
)
Index("spaces_ended", spaces.c.account, spaces.c.kind, spaces.c.ended)

artifacts = _table(
    "artifacts",
    Column("key", Text, primary_key=True),
    _text("account"),
    _text("endpoint"),
    _text("job"),
    _int("size"),
    _text("sha256"),
    _text("media_type"),
    _time("expires_at"),
)
Index("artifacts_expiry", artifacts.c.expires_at)
Index("artifacts_job", artifacts.c.job)

leftovers = _table(
    "leftovers",
    Column("name", Text, primary_key=True),
    Column("not_before", _TIME, nullable=False, server_default="0"),
)

counters = _table(
    "counters",
    _text("account"),
    _text("endpoint"),
    _text("name"),
    _int("value"),
    PrimaryKeyConstraint("account", "endpoint", "name"),
)
