"""Logs of attempts in the store: the last lines that a handler wrote, kept once its attempt has ended."""

from __future__ import annotations

from itertools import chain

from stoker.control.rules.streams import AttemptLog
from stoker.control.store.database.opening import Conn
from stoker.wire.messages import Outcome

LOG_LINES = 100
LOG_BYTES = 16 * 1024


def keep_log(conn: Conn, seq: int, outcome: Outcome) -> None:
    """Stores the last lines of the attempt's log, as many as fit, with their times."""
    split = [text.split("\n") for text in outcome.log[-LOG_LINES:]]
    times = [at for lines, at in zip(split, outcome.log_at_ms[-LOG_LINES:], strict=False) for _ in lines]
    kept = "\n".join(list(chain.from_iterable(split))[-LOG_LINES:]).encode("utf-8", "replace")
    if len(kept) > LOG_BYTES:
        kept = kept[-LOG_BYTES:]
        kept = kept[kept.find(b"\n") + 1 :]
    if kept:
        text = kept.decode("utf-8", "ignore")
        first = max(outcome.log_first + len(outcome.log) - text.count("\n") - 1, 0)
        kept_times = " ".join(map(str, times[-text.count("\n") - 1 :])) or None
        values = {"seq": seq, "attempt": outcome.attempt, "worker": outcome.worker, "text": text}
        conn.run("insert_log", values | {"first_line": first, "times": kept_times})


_LOGS = """
SELECT logs.attempt, logs.worker, logs.text, logs.first_line, logs.times
FROM jobs LEFT JOIN logs ON logs.seq = jobs.seq
WHERE jobs.id = :job AND jobs.account = :account AND jobs.endpoint = :endpoint AND jobs.expires_at > :now
ORDER BY logs.attempt
"""


_LAST = """
SELECT logs.text FROM jobs JOIN logs ON logs.seq = jobs.seq AND logs.attempt = jobs.attempt
WHERE jobs.id = :job
"""


def last_lines(conn: Conn, job: str, most: int) -> tuple[str, ...]:
    """Returns the lines that the job's last attempt wrote last, at most `most`."""
    row = conn.run(_LAST, {"job": job}).fetchone()
    return () if row is None else tuple(row[0].split("\n")[-most:])


def job_logs(conn: Conn, account: str, endpoint: str, job: str, now: float) -> tuple[AttemptLog, ...] | None:
    """Returns what each attempt wrote last, oldest first; None when there is no such job."""
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now}
    rows = conn.run(_LOGS, values).fetchall()
    if not rows:
        return None
    return tuple(
        AttemptLog(attempt, worker, tuple(text.split("\n")), first, tuple(map(int, (times or "").split())))
        for attempt, worker, text, first, times in rows
        if attempt is not None
    )
