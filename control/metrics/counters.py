"""Counts what happens: jobs that end or wait again, claims, starts, costs, uploads, webhooks, the loop's lag.

Counted from this process's start on, as Prometheus expects of a counter. An endpoint that is deleted takes
its series along (`forget`), so temporary endpoints do not add up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, Info

from stoker.control.metrics.recent import RecentEnds
from stoker.control.rules.billing import NANO
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import Changed, Cost
from stoker.wire.messages import StartStage

SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""The bounds of the buckets of jobs and starts."""

LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
LAG_EVERY_S = 1.0


class Counters:
    """The counters. `registry` holds them all. `recent`: the jobs that ended last."""

    def __init__(self, version: str, clock: Callable[[], float]) -> None:
        self.recent = RecentEnds(clock)
        self.registry = registry = CollectorRegistry(auto_describe=True)
        Info("stoker_build", "The version of this control process.", registry=registry).info(
            {"version": version}
        )
        self._ended = Counter(
            "stoker_jobs_ended", "Jobs that ended, by their state.", ["endpoint", "state"], registry=registry
        )
        self._again = Counter(
            "stoker_jobs_requeued",
            "Jobs that wait again, by the cause.",
            ["endpoint", "cause"],
            registry=registry,
        )
        self._claimed = Counter(
            "stoker_jobs_claimed", "Attempts that were given to workers.", ["endpoint"], registry=registry
        )
        self._delay = Histogram(
            "stoker_job_delay_seconds",
            "How long jobs that ended had waited.",
            ["endpoint"],
            buckets=SECONDS,
            registry=registry,
        )
        self._execution = Histogram(
            "stoker_job_execution_seconds",
            "How long the handler ran for jobs that ended.",
            ["endpoint"],
            buckets=SECONDS,
            registry=registry,
        )
        self._start = Histogram(
            "stoker_worker_start_seconds",
            "The stages of workers' starts.",
            ["endpoint", "stage"],
            buckets=SECONDS,
            registry=registry,
        )
        self._costs = Counter(
            "stoker_cost_usd",
            "What was billed: time of workers and pods, and outputs.",
            ["kind", "endpoint"],
            registry=registry,
        )
        self._uploads = Counter(
            "stoker_upload_failures",
            "Uploads of jobs' results that failed and are tried again.",
            ["bucket"],
            registry=registry,
        )
        self._webhooks = Counter(
            "stoker_webhook_tries",
            "Tries to deliver webhooks, by their result.",
            ["result"],
            registry=registry,
        )
        self._lag = Histogram(
            "stoker_loop_lag_seconds",
            "How late control's loop wakes.",
            buckets=LAGS,
            registry=registry,
        )
        self._per_endpoint = (
            self._ended,
            self._again,
            self._claimed,
            self._delay,
            self._execution,
            self._start,
            self._costs,
        )
        self._seen: set[str] = set()

    def changed(self, change: Changed) -> None:
        """Counts a job's end, or that it waits again."""
        self._seen.add(change.endpoint)
        if (view := change.view) is None:
            if change.state is JobState.IN_QUEUE and change.cause:
                self._again.labels(change.endpoint, change.cause).inc()
            return
        self.recent.add(view)
        self._ended.labels(view.endpoint, view.state.value.lower()).inc()
        if view.delay_ms is not None:
            self._delay.labels(view.endpoint).observe(view.delay_ms / 1000)
        if view.execution_ms is not None:
            self._execution.labels(view.endpoint).observe(view.execution_ms / 1000)

    def claimed(self, endpoint: str) -> None:
        self._seen.add(endpoint)
        self._claimed.labels(endpoint).inc()

    def started(self, endpoint: str, stages: Iterable[StartStage]) -> None:
        """Counts the stages of a start that has ended well."""
        self._seen.add(endpoint)
        for stage in stages:
            self._start.labels(endpoint, stage.name).observe(stage.took_ms / 1000)

    def billed(self, costs: Iterable[Cost]) -> None:
        """Counts what was added to bills. Pods are one series, as they come and go."""
        for cost in costs:
            endpoint = cost.resource if cost.kind == "endpoint" else ""
            if endpoint:
                self._seen.add(endpoint)
            self._costs.labels(cost.kind, endpoint).inc(cost.nano_usd / NANO)

    def upload_failed(self, own_bucket: bool) -> None:
        self._uploads.labels("own" if own_bucket else "platform").inc()

    def webhook(self, delivered: bool) -> None:
        self._webhooks.labels("delivered" if delivered else "failed").inc()

    def forget(self, there: Collection[str]) -> None:
        """Drops the series of endpoints that are not there any more."""
        for gone in self._seen.difference(there):
            for metric in self._per_endpoint:
                metric.remove_by_labels({"endpoint": gone})
            self._seen.discard(gone)

    async def watch_lag(self) -> None:
        """Measures the loop's lag until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._lag.observe(max(loop.time() - due, 0.0))
