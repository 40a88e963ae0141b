"""Reports of agents, applied to the store: outcomes, chunks, progress, refusals, and the bill.

Every statement names job, attempt and node, so that a resent or a stale report matches no row; it is
acknowledged all the same. Counters, bills and artifacts are written only where a row changed, in the same
transaction. The released slot and the state of workers are not stored: the session keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.control.rules.billing import PriceList
from stoker.control.rules.job_states import JobState
from stoker.control.rules.limits import URL_LIFE_S
from stoker.control.rules.pods import WantedPod
from stoker.control.rules.retries import retries
from stoker.control.rules.types import Changed, Cost, JobView, ReportsApplied, TracedAttempt
from stoker.control.store.billing.bills import bill_outputs
from stoker.control.store.billing.usage import add_usage
from stoker.control.store.database.opening import Conn
from stoker.control.store.jobs.cases import keep_case
from stoker.control.store.jobs.kept_logs import keep_log
from stoker.control.store.jobs.orphan_objects import prefixes, release, without_read
from stoker.control.store.jobs.quota_uses import add_gpu_time
from stoker.control.store.jobs.reads import NO_REF, ref_columns
from stoker.control.store.jobs.saves import drop_save, put_save
from stoker.control.store.jobs.waits_again import GivenUp, WaitsAgain, refused, tried_again
from stoker.control.store.jobs.webhook_outbox import note_end
from stoker.control.store.resources.pods import apply_pod_state
from stoker.control.store.resources.volumes import note_used
from stoker.wire.messages import (
    Artifact,
    AttemptKey,
    Chunk,
    Outcome,
    PodState,
    Progress,
    Refused,
    Report,
    Save,
    Span,
    Uploading,
    Usage,
    VolumeUsed,
)

RENEWAL_S = 1.0
"""A lease is many seconds long, and an outcome should cost few statements."""

DEVICE_MS = "device_ms"

_STATES = {
    "completed": JobState.COMPLETED,
    "timed_out": JobState.TIMED_OUT,
}
_COUNTERS = {
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.TIMED_OUT: "failed",
    JobState.CANCELLED: "cancelled",
}


class _Gathered(Struct):
    """The effects of a batch of reports so far."""

    changed: list[Changed] = field(default_factory=list)
    streamed: dict[AttemptKey, None] = field(default_factory=dict)
    stale: dict[AttemptKey, None] = field(default_factory=dict)
    orphans: list[Artifact] = field(default_factory=list)
    pods: list[WantedPod] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    delayed: list[AttemptKey] = field(default_factory=list)


NO_PRICES = PriceList()


def apply_reports(
    conn: Conn,
    *,
    node: str,
    session: int,
    reports: Sequence[Report],
    now: float,
    prices: PriceList = NO_PRICES,
) -> ReportsApplied:
    """Applies them in order, and renews the node's lease. Outcomes are guarded by node and attempt only."""
    renewed, at = conn.renewed.get(node, (0, 0.0))
    if renewed != session or abs(now - at) >= RENEWAL_S:
        conn.run("renew", {"node": node, "session": session, "now": now})
        conn.renewed[node] = session, now
    done = _Gathered()
    for report in reports:
        match report.body:
            case Outcome() as outcome:
                _outcome(conn, node, outcome, now, done)
            case Chunk() as chunk:
                _chunk(conn, node, chunk, now, done)
            case Save() as save:
                _save(conn, node, save, done)
            case Progress(job, attempt, value):
                values = {"job": job, "attempt": attempt, "node": node, "value": value}
                _apply_streamed(conn, "set_progress", values, done)
            case Uploading() as uploading:
                _uploading(conn, node, uploading, now, done)
            case Refused() as refusal:
                _refused(conn, node, refusal, now, done)
            case PodState() as state:
                pod = apply_pod_state(conn, node, state, now)
                done.pods += [pod] if pod is not None else []
            case VolumeUsed(volume, used_bytes, gone=False):
                note_used(conn, volume, used_bytes, now)
            case Usage() as span:
                cost = add_usage(conn, node, span, prices, now)
                done.costs += [cost] if cost is not None else []
            case _:
                pass
    return ReportsApplied(
        changed=tuple(done.changed),
        chunks=tuple(done.streamed),
        stale=tuple(done.stale),
        orphans=tuple(done.orphans),
        pods=tuple(done.pods),
        costs=tuple(done.costs),
        delayed=tuple(done.delayed),
    )


def _save(conn: Conn, node: str, save: Save, done: _Gathered) -> None:
    """Stores the save; readers may have the chunks now that it covers."""
    known = done.streamed if put_save(conn, node, save) else done.stale
    known[AttemptKey(save.job, save.attempt)] = None


def _uploading(conn: Conn, node: str, uploading: Uploading, now: float, done: _Gathered) -> None:
    key = AttemptKey(uploading.job, uploading.attempt)
    values = {"job": key.job, "attempt": key.attempt, "node": node, "why": uploading.why or None}
    values["now"] = now
    if conn.run("set_uploading", values).rowcount > 0 and uploading.why:
        done.delayed.append(key)


def _chunk(conn: Conn, node: str, chunk: Chunk, now: float, done: _Gathered) -> None:
    values = {"job": chunk.job, "attempt": chunk.attempt, "node": node, "n": chunk.n, "value": chunk.value}
    values["now"] = now
    where = NO_REF if chunk.ref is None else ref_columns(chunk.ref)
    if not _apply_streamed(conn, "insert_chunk", {**values, **where}, done) and chunk.ref is not None:
        release(conn, chunk.job, [chunk.ref.key])


def _apply_streamed(conn: Conn, statement: str, values: dict[str, Any], done: _Gathered) -> bool:
    key = AttemptKey(values["job"], values["attempt"])
    if conn.run(statement, values).rowcount > 0:
        done.streamed[key] = None
        return True
    if conn.run("is_open", values).fetchone() is None:
        done.stale[key] = None
    return False


# ---- outcomes -----------------------------------------------------------------------------------


def _outcome(conn: Conn, node: str, outcome: Outcome, now: float, done: _Gathered) -> None:
    if outcome.end in _STATES:
        accepted = _finish(conn, node, outcome, _STATES[outcome.end], outcome.error, now, done)
    elif outcome.end == "cancelled":
        accepted = _stopped(conn, node, outcome, now, done)
    else:
        accepted = _again(conn, node, outcome, now, done)
    if not accepted:
        done.stale[AttemptKey(outcome.job, outcome.attempt)] = None
        _late(conn, node, outcome, now, done)


def _again(conn: Conn, node: str, outcome: Outcome, now: float, done: _Gathered) -> bool:
    """Has the job tried again, or ends it once it failed often enough. The attempt is over."""
    match tried_again(conn, node, outcome, now):
        case None:
            return False
        case GivenUp(why):
            return _finish(conn, node, outcome, JobState.FAILED, why, now, done)
        case WaitsAgain() as job:
            keep_log(conn, job.seq, outcome)
            payer = _Payer(job.account, job.endpoint, job.api_key, job.metered)
            _bill(conn, node, outcome, _executed(outcome), payer, now, done.costs)
            if not job.own_bucket:
                done.orphans += outcome.artifacts
            since, trace = (job.created_at, job.claimed_at), job.traceparent
            traced = None if trace is None else _traced(node, outcome, *since, trace)
            done.changed.append(
                Changed(outcome.job, job.endpoint, JobState.IN_QUEUE, cause=outcome.end, traced=traced)
            )
            return True


def _refused(conn: Conn, node: str, report: Refused, now: float, done: _Gathered) -> None:
    changed = refused(conn, node, report, now)
    if changed is None:
        done.stale[AttemptKey(report.job, report.attempt)] = None
    else:
        done.changed.append(changed)


def _stopped(conn: Conn, node: str, outcome: Outcome, now: float, done: _Gathered) -> bool:
    """Ends a job that the node stopped of its own accord. As after a caller's cancel, nothing is delivered or
    sold."""
    spans = tuple(_executed(outcome))
    bare = replace(outcome, output=None, output_ref=None, artifacts=(), spans=spans)
    accepted = _finish(conn, node, bare, JobState.CANCELLED, outcome.error, now, done)
    if accepted:
        _drop_uploads(conn, outcome, done)
    return accepted


def _finish(
    conn: Conn, node: str, outcome: Outcome, state: JobState, error: str | None, now: float, done: _Gathered
) -> bool:
    values = {
        "job": outcome.job,
        "attempt": outcome.attempt,
        "node": node,
        "state": state.value,
        "now": now,
        "worker": outcome.worker,
        "wait_ms": outcome.wait_ms,
        "execution_ms": outcome.execution_ms,
    }
    row = conn.run("finish", values).fetchone()
    if row is None:
        return False
    seq, account, endpoint, created_at, sync, refused, delay_ms, webhook, own_bucket, first, *more = row
    payer, stream, trace = _Payer(account, endpoint, *more[:2]), more[2], more[3:]
    case_save = None
    if state in (JobState.FAILED, JobState.TIMED_OUT):
        case_save = keep_case(conn, node, seq, endpoint, outcome)
    if stream is not None:
        drop_save(conn, seq)
    if outcome.output is not None or outcome.output_ref is not None or error is not None:
        where = NO_REF if outcome.output_ref is None else ref_columns(outcome.output_ref)
        conn.write("insert_result", {"seq": seq, "output": outcome.output, "error": error, **where})
    if outcome.spans:
        _bill(conn, node, outcome, outcome.spans, payer, now, done.costs)
    if outcome.artifacts and not own_bucket:
        _keep_artifacts(conn, outcome, account, endpoint, now)
    if outcome.log:
        keep_log(conn, seq, outcome)
    conn.write("count", {"account": account, "endpoint": endpoint, "name": _COUNTERS[state], "by": 1})
    view = JobView(
        id=outcome.job,
        endpoint=endpoint,
        state=state,
        created_at=created_at,
        sync=bool(sync),
        attempt=outcome.attempt,
        retries=retries(outcome.attempt, refused) if outcome.attempt > 1 else 0,
        worker=outcome.worker,
        delay_ms=max(delay_ms, 0),
        execution_ms=outcome.execution_ms,
        output=outcome.output,
        output_ref=outcome.output_ref,
        error=error,
        webhook=webhook,
        traceparent=trace[1],
    )
    if webhook is not None:
        note_end(conn, seq, view, webhook, now)
    losers = prefixes(endpoint, outcome.job, range(first, outcome.attempt)) if first < outcome.attempt else ()
    if losers and stream is not None:
        losers = without_read(conn, seq, stream, losers)
    if case_save is not None:
        losers = tuple(prefix for prefix in losers if not case_save.startswith(prefix))
    traced = None if trace[1] is None else _traced(node, outcome, created_at, *trace)
    done.changed.append(Changed(outcome.job, endpoint, state, view=view, losers=losers, traced=traced))
    return True


def _keep_artifacts(conn: Conn, outcome: Outcome, account: str, endpoint: str, now: float) -> None:
    rows = [
        {
            "key": artifact.key,
            "account": account,
            "endpoint": endpoint,
            "job": outcome.job,
            "size": artifact.size,
            "sha256": artifact.sha256,
            "media_type": artifact.media_type,
            "expires_at": now + URL_LIFE_S,
        }
        for artifact in outcome.artifacts
    ]
    conn.run_many("insert_artifact", rows)


# ---- what goes with an outcome ------------------------------------------------------------


def _traced(
    node: str, outcome: Outcome, created_at: float, claimed_at: float, traceparent: str
) -> TracedAttempt:
    return TracedAttempt(
        traceparent,
        created_at,
        outcome.attempt,
        node,
        outcome.worker,
        outcome.end,
        claimed_at,
        outcome.wait_ms,
        outcome.execution_ms,
        uploaded=bool(outcome.artifacts or outcome.output_ref),
    )


class _Payer(Struct, frozen=True):
    """The payer of a job: account, endpoint and API key. `metered`: its GPU time counts for a quota."""

    account: str
    endpoint: str
    api_key: str
    metered: int


def _bill(
    conn: Conn,
    node: str,
    outcome: Outcome,
    spans: Iterable[Span],
    payer: _Payer,
    now: float,
    costs: list[Cost],
) -> None:
    """Stores what the job took, once; where its output has a price, adds that to the bill and to `costs`, and
    where it is metered, its GPU time to the day."""
    new = []
    for span in spans:
        row = {
            "job": outcome.job,
            "attempt": outcome.attempt,
            "kind": span.kind,
            "unit": span.unit,
            "account": payer.account,
            "endpoint": payer.endpoint,
            "quantity": span.quantity,
            "nano_usd": span.nano_usd,
            "at": now,
        }
        if conn.run("insert_span", row).rowcount == 0:
            continue
        if span.unit != DEVICE_MS:
            new.append(span)
        elif payer.metered:
            add_gpu_time(conn, payer.api_key, payer.endpoint, span.quantity, now)
    if new:
        costs.append(bill_outputs(conn, node, outcome.worker, payer.account, payer.endpoint, new, now))


def _executed(outcome: Outcome) -> list[Span]:
    """Returns the spans of time that was used; output that is not delivered is not sold."""
    return [span for span in outcome.spans if span.kind == "execution"]


# ---- ends that come too late ----------------------------------------------------------------------

# Of an attempt that its agent ended, `node` is not known any more.
_CLOSE_CANCELLED = """
UPDATE jobs SET node = NULL, execution_ms = :execution_ms
WHERE id = :job AND attempt = :attempt AND node = :node AND state IN ('CANCELLED', 'TIMED_OUT')
RETURNING seq, account, endpoint, api_key, metered
"""


def _late(conn: Conn, node: str, outcome: Outcome, now: float, done: _Gathered) -> None:
    """Notes a loser's uploads for deletion. Records and bills, once, what a cancelled attempt executed."""
    values = {"job": outcome.job, "attempt": outcome.attempt, "node": node}
    row = conn.run(_CLOSE_CANCELLED, values | {"execution_ms": outcome.execution_ms}).fetchone()
    if row is not None:
        seq, account, endpoint, *by = row
        keep_log(conn, seq, outcome)
        _bill(conn, node, outcome, _executed(outcome), _Payer(account, endpoint, *by), now, done.costs)
    _drop_uploads(conn, outcome, done)


def _drop_uploads(conn: Conn, outcome: Outcome, done: _Gathered) -> None:
    """Gives up the uploads that no record names."""
    if outcome.output_ref is not None:
        release(conn, outcome.job, [outcome.output_ref.key])
    if outcome.artifacts:
        done.orphans += _not_kept(conn, outcome)


def _not_kept(conn: Conn, outcome: Outcome) -> list[Artifact]:
    """Returns the artifacts that no accepted outcome had: a resent report must not delete what its first copy
    delivered."""
    row = conn.run("SELECT own_bucket FROM jobs WHERE id = :job", {"job": outcome.job}).fetchone()
    if row is not None and row[0]:
        return []
    kept = "SELECT 1 FROM artifacts WHERE key = :key"
    return [one for one in outcome.artifacts if conn.run(kept, {"key": one.key}).fetchone() is None]
