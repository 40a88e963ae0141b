"""The tables of jobs, and of what is stored with them.

`seq` orders jobs. Rows with a `seq` are deleted with their job; artifacts, webhooks and idempotency keys
outlive it. `jobs` rows stay small: whatever may be large is a row of its own, since changing the state of a
row that holds 1 MB costs milliseconds.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, LargeBinary, PrimaryKeyConstraint, Text

from stoker.control.store.tables.columns import (
    INTEGER,
    TIME,
    account,
    integer,
    job,
    reference,
    sealed,
    string,
    table,
    time,
    where,
)

jobs = table(
    "jobs",
    Column("seq", INTEGER, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    account(),
    string("endpoint", ForeignKey("endpoints.id")),
    string("state"),
    integer("rank"),  # its lane, see control.rules.queueing.order
    time("not_before"),  # its place in the lane; also the end of a back-off
    time("created_at"),
    time("expires_at"),
    time("ttl_at"),  # the hard limit; expires_at is never later
    time("retention_s"),
    Column("claimed_at", TIME),
    Column("ended_at", TIME),
    integer("sync"),
    integer("low"),
    integer("execution_timeout_ms"),
    Column("webhook", Text),
    integer("own_bucket", 0),  # uploads go to the caller's bucket, from which Stoker deletes nothing
    integer("attempt", 0),
    integer("max_attempts", 3),
    integer("handler_retries", 0),
    integer("failures", 0),
    integer("handler_failures", 0),
    integer("refused", 0),
    integer("backoffs", 0),  # refusals after which it had to wait: others handed it back for another worker
    integer("given_before", 0),  # its attempts before its caller's last retry, or its last progress
    integer(
        "first_attempt", 1
    ),  # the first since then: objects of earlier ones were noted as orphans already
    Column("reason", Text),  # why the last attempt failed, or why it was cancelled
    integer("suspect", 0),  # requeued because its node was lost: counts once it is claimed again
    integer("uploading", 0),
    Column("node", Text),  # the node that may still end the current attempt
    Column("worker", Text),
    Column("delay_ms", INTEGER),
    Column("execution_ms", INTEGER),
    string("api_key", default=""),  # the id of the key that submitted it
    integer("metered", 0),  # it counts for the quota of its key or of its endpoint
    Column("traceparent", Text),  # the span that is its parent
    Column("stream_attempt", INTEGER),  # that its chunks are stored with; null: the current one, and no save
    Column("held_from", INTEGER),  # the first chunk that waits for a save; null: none does
    integer("began_anew", 0),  # the running attempt did, in spite of a save; `reason` says why
    integer("urgent", 0),  # with `low`: its class
    Column("late_at", TIME),  # it is ended then: at startBy; once claimed, at the deadline
    Column("deadline", TIME),
    integer("yields", 0),  # how often it gave up its slot
    Column("yielded_at", TIME),  # the last time
    Column("uploading_at", TIME),  # an upload began then: the last attempt's, if after `claimed_at`
)
Index(
    "jobs_queue",
    jobs.c.endpoint,
    jobs.c.rank,
    jobs.c.not_before,  # those that back off are last in their rank, where no claim reads them
    jobs.c.seq,
    **where("state = 'IN_QUEUE'"),
)
Index(  # what scaling counts: jobs that start workers, and jobs that do not; by age
    "jobs_demand",
    jobs.c.endpoint,
    jobs.c.low,
    jobs.c.seq,
    **where("state = 'IN_QUEUE'"),
)
Index("jobs_late", jobs.c.late_at, **where("late_at IS NOT NULL AND ended_at IS NULL"))
Index(
    "jobs_held",
    jobs.c.node,
    jobs.c.state,
    jobs.c.endpoint,
    **where("node IS NOT NULL"),
)
Index("jobs_metered", jobs.c.api_key, **where("state = 'IN_QUEUE' AND metered = 1"))
Index("jobs_expiry", jobs.c.expires_at)
Index("jobs_listed", jobs.c.endpoint, jobs.c.seq)

inputs = table(
    "inputs", job(primary_key=True), Column("body", LargeBinary), *reference(), sealed("s3", nullable=True)
)

results = table(
    "results", job(primary_key=True), Column("output", LargeBinary), *reference(), Column("error", Text)
)

progress = table("progress", job(primary_key=True), integer("attempt"), Column("value", LargeBinary))

chunks = table(
    "chunks",
    job(),
    integer("attempt"),
    integer("n"),
    Column("value", LargeBinary, nullable=False),
    *reference(),
    Column("stored_at", TIME),
    PrimaryKeyConstraint("seq", "attempt", "n"),
)
Index(  # the end of a job need not read all of its chunks
    "chunks_spilled",
    chunks.c.seq,
    chunks.c.ref_key,
    **where("ref_key IS NOT NULL"),
)

saves = table(  # of each job the last
    "saves",
    job(primary_key=True),
    integer("attempt"),
    integer("n"),
    integer("upto"),
    integer("stream_attempt"),
    string("made_by"),  # the version of the endpoint, and the device
    integer("progressed"),  # the last attempt that saved something new
    string("sha256"),
    Column("state", LargeBinary, nullable=False),
    *reference(),
)

cases = table(  # of jobs that failed, where their endpoint keeps cases
    "cases",
    job(primary_key=True),
    integer("attempt"),
    Column("version", INTEGER),  # of the endpoint; null: not known
    string("node"),
    string("worker"),
    string("facts"),  # JSON: the devices, and facts of the node
    Column("noted", LargeBinary, nullable=False),  # JSON of the worker; empty: it noted nothing
    Column("saved_upto", INTEGER),  # how many chunks the job's last save covers; null: it saved nothing
    Column("saved", LargeBinary),
    *reference(),
)

attempts = table(  # those after which their job waited again; the last one is in the job's row
    "attempts",
    job(),
    integer("attempt"),
    string("worker"),
    Column("node", Text),
    time("assigned_at"),
    Column("wait_ms", INTEGER),
    Column("execution_ms", INTEGER),
    Column("chunk_at", TIME),
    Column("uploading_at", TIME),
    time("ended_at"),
    string("cause"),
    Column("reason", Text),
    PrimaryKeyConstraint("seq", "attempt"),
)

cursors = table(
    "cursors",
    job(primary_key=True),
    integer("attempt"),
    integer("n"),
    integer("told", 0),  # the end was reported to pollers
)

logs = table(
    "logs",
    job(),
    integer("attempt"),
    string("worker"),
    string("text"),
    integer("first_line", 0),  # how many lines of the attempt came before
    Column("times", Text),  # of each line: milliseconds since the epoch, with blanks between; null: not known
    PrimaryKeyConstraint("seq", "attempt"),
)

idempotency = table(
    "idempotency",
    string("account"),
    string("endpoint"),
    string("key"),
    Column("fingerprint", LargeBinary, nullable=False),
    string("job"),
    time("expires_at"),
    PrimaryKeyConstraint("account", "endpoint", "key"),
)
Index("idempotency_expiry", idempotency.c.expires_at)

webhooks = table(  # to be delivered, as they were when their job ended
    "webhooks",
    Column("id", Text, primary_key=True),
    string("job"),
    account(),
    string("url"),
    string("api_key", default=""),  # of its job, as the endpoint
    string("endpoint", default=""),
    string("receiver"),  # the host and port of the URL
    string("state"),
    integer("tries", 0),
    time("next_at"),
    time("created_at"),
    integer("retries"),
    Column("worker", Text),
    Column("delay_ms", INTEGER),
    Column("execution_ms", INTEGER),
    Column("error", Text),
    Column("reason", Text),
    Column("input", LargeBinary),
    Column("input_key", Text),
    Column("input_size", INTEGER),
    Column("input_sha256", Text),
    Column("output", LargeBinary),
    Column("output_key", Text),
    Column("output_size", INTEGER),
    Column("output_sha256", Text),
)
Index("webhooks_due", webhooks.c.account, webhooks.c.next_at)
Index("webhooks_job", webhooks.c.job)

artifacts = table(
    "artifacts",
    Column("key", Text, primary_key=True),
    string("account"),
    string("endpoint"),
    string("job"),
    integer("size"),
    string("sha256"),
    string("media_type"),
    time("expires_at"),
)
Index("artifacts_expiry", artifacts.c.expires_at)
Index("artifacts_job", artifacts.c.job)

leftovers = table(
    "leftovers",
    Column("name", Text, primary_key=True),
    Column("not_before", TIME, nullable=False, server_default="0"),
)
