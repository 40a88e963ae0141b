"""What callers ask for: drawn from the seed, with all that is known of how it may end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

ACCOUNT = "default"


@dataclass
class Request:
    """One thing that a caller wants done. `plan`: a script for each attempt, see workshop."""

    number: int
    endpoint: str
    plan: list[dict[str, Any]]
    ttl_s: float
    timeout_s: float
    sync: bool = False
    must_end: bool = False
    """A call that waits ends its job when it has waited enough, as hosted ones do."""

    low: bool = False
    urgent: bool = False
    """It may have a slot that another job yields."""

    key: str | None = None
    webhook: str | None = None
    manner: tuple[str, ...] = ("wait",)
    pad: int = 0
    own_bucket: bool = False
    cancelled: bool = False
    purged: bool = False
    shortened: bool = False
    answered: int = 0
    """How often its submission was answered with a job."""

    body: bytes = field(init=False)

    def __post_init__(self) -> None:
        job_input: dict[str, Any] = {"request": self.number, "plan": self.plan}
        if self.pad:
            job_input["pad"] = "i" * self.pad
        self.body = json.dumps(job_input).encode()

    def script(self, attempt: int) -> dict[str, Any]:
        return self.plan[min(attempt, len(self.plan)) - 1]


GOOD: dict[str, Any] = {"run_s": 0.5}


def draw(rng: Random, number: int, endpoints: list[str]) -> Request:
    plan, timeout_s = _plan(rng, number)
    endpoint = rng.choice(endpoints)
    long = plan[0]["run_s"] > 20
    own_bucket = rng.random() < 0.1
    if number % 3 == 0:  # a worker that takes several may choose anew with each job
        plan = [{**script, "slots": 1 + number % 2} for script in plan]
    if number % 4 == 2:
        plan, timeout_s = [saving(script, number) for script in plan], 200.0
    return Request(
        number,
        endpoint,
        plan,
        ttl_s=rng.choice([8.0, 20.0, 60.0]) if rng.random() < (0.35 if long else 0.12) else 7200.0,
        timeout_s=timeout_s,
        sync=rng.random() < 0.3,
        must_end=number % 4 == 1,
        low=rng.random() < 0.15 and endpoint == endpoints[0],  # no worker is started for these alone
        urgent=number % 5 == 3,
        key=f"key-{number}" if rng.random() < 0.5 else None,
        webhook=f"https://hook.test/{number}" if rng.random() < 0.4 else None,
        manner=_manner(rng, long),
        own_bucket=own_bucket,
        pad=rng.choice([800, 2000]) if rng.random() < 0.15 else 0,
    )


def saving(script: dict[str, Any], number: int) -> dict[str, Any]:
    """A handler that takes long and saves: each of its chunks, or every other; some saves are large."""
    saves = {"saves": 1 + number // 4 % 2, "save_bytes": 400 * (number // 8 % 2)}
    return {**script, "run_s": max(script["run_s"], 12.0), "chunks": 8, **saves}


def _plan(rng: Random, number: int) -> tuple[list[dict[str, Any]], float]:
    """Mostly a handler takes a moment and returns; the others are why there is a queue at all."""
    run_s = rng.choice([0.01, 0.2, 1.0, 4.0])
    good = {"run_s": run_s, "chunks": rng.choice([0, 1, 3, 8]), "progress": [0.5]}
    if rng.random() < 0.25:
        good["pad"] = 900
    if rng.random() < 0.15:
        good["chunk_pad"] = 600
    if rng.random() < 0.25:
        good["files"] = [{"name": "a.png", "content": "picture"}, {"name": "b.png"}][: rng.choice([1, 2])]
    bad = rng.random()
    if bad < 0.06:
        return [{**good, "error": f"request {number} cannot", "chunks": 2}], 30.0
    if bad < 0.12:
        return [{"run_s": run_s, "error": "not now", "retryable": True, "chunks": 2}, good], 30.0
    if bad < 0.18:
        return [{"run_s": run_s, "exit": -11, "chunks": 3}, good], 30.0
    if bad < 0.22:
        return [{"run_s": run_s, "exit": -9}], 30.0
    if bad < 0.30:
        stuck: dict[str, Any] = {"run_s": 40.0, "chunks": 4, "ignore_cancel": rng.random() < 0.6}
        return [{**stuck, "ignore_term": rng.random() < 0.5}], rng.choice([2.0, 6.0])
    if bad < 0.33:
        return [{"run_s": 90.0, "chunks": 2}, good], 200.0
    if bad < 0.40:
        return [{"run_s": 25.0, "chunks": 6, "progress": [1, 2, 3]}], 60.0
    return [good], 30.0


def _manner(rng: Random, long: bool) -> tuple[str, ...]:
    """How its caller goes about it; several at once are several programs."""
    watched = rng.choice(["wait", "wait", "status", "leave", "leave"])
    more = [name for name in ("follow", "stream") if rng.random() < 0.35]
    for name, chance in (
        ("cancel", 0.4 if long else 0.1),
        ("shorten", 0.15 if long else 0.04),
        ("retry", 0.3),
        ("logs", 0.1),
    ):
        if rng.random() < chance:
            more.append(name)
    return (watched, *more)
