"""The uses of quotas in the store: jobs of a key or an endpoint that wait, and the GPU time of a day.

Only jobs that are metered count: those that a key or an endpoint with such a quota took. Their GPU time is
added in the transaction that stores what an attempt executed, so none is added twice. A quota that is set
later does not count the jobs before it.
"""

from __future__ import annotations

from typing import Literal

from stoker.control.rules.quotas import Quota, Use, day_of
from stoker.control.store.database.opening import Conn

Kind = Literal["key", "endpoint"]

KEPT_DAYS = 31

_WAITING: dict[Kind, str] = {
    "key": "SELECT 1 FROM jobs WHERE api_key = :owner AND state = 'IN_QUEUE' AND metered = 1",
    "endpoint": "SELECT 1 FROM jobs WHERE endpoint = :owner AND state = 'IN_QUEUE' AND rank IN (0, 1, 2, 3)",
}
_COUNTED = {kind: f"SELECT COUNT(*) FROM ({rows} LIMIT :most) AS counted" for kind, rows in _WAITING.items()}

_GPU_TIME = "SELECT gpu_ms FROM gpu_days WHERE kind = :kind AND owner = :owner AND day = :day"

_ADD = """
INSERT INTO gpu_days (kind, owner, day, gpu_ms) VALUES (:kind, :owner, :day, :gpu_ms)
ON CONFLICT (kind, owner, day) DO UPDATE SET gpu_ms = gpu_days.gpu_ms + excluded.gpu_ms
"""


def use(conn: Conn, kind: Kind, owner: str, quota: Quota, now: float) -> Use:
    """Returns the use that the quota bounds; no more jobs are counted than it allows."""
    waiting = gpu_ms = 0
    if quota.jobs_waiting is not None:
        row = conn.run(_COUNTED[kind], {"owner": owner, "most": quota.jobs_waiting}).fetchone()
        waiting = row[0]
    if quota.gpu_seconds_per_day is not None:
        row = conn.run(_GPU_TIME, {"kind": kind, "owner": owner, "day": day_of(now)}).fetchone()
        gpu_ms = 0 if row is None else row[0]
    return Use(waiting, gpu_ms)


def add_gpu_time(conn: Conn, key: str, endpoint: str, gpu_ms: int, now: float) -> None:
    """Adds the GPU time of a metered job to its endpoint's day, and to its key's, if it has one."""
    owners: tuple[tuple[Kind, str], ...] = (("key", key), ("endpoint", endpoint))
    for kind, owner in owners if key else owners[1:]:
        conn.run(_ADD, {"kind": kind, "owner": owner, "day": day_of(now), "gpu_ms": gpu_ms})


def forget_gpu_days(conn: Conn, now: float) -> int:
    """Deletes the days before the last 31. Returns how many rows were deleted."""
    return conn.run("DELETE FROM gpu_days WHERE day < :day", {"day": day_of(now) - KEPT_DAYS}).rowcount
