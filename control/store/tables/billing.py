"""The tables of use and money. Spans, usage and counters outlive the jobs that they are about."""

from __future__ import annotations

from sqlalchemy import Index, PrimaryKeyConstraint

from stoker.control.store.tables.columns import integer, string, table, time

spans = table(
    "spans",
    string("job"),
    integer("attempt"),
    string("kind"),
    string("unit"),
    string("account"),
    string("endpoint"),
    integer("quantity"),
    integer("nano_usd"),
    time("at"),
    PrimaryKeyConstraint("job", "attempt", "kind", "unit"),
)

usage = table(  # the times for which workers and pods held devices
    "usage",
    string("owner"),
    string("boot"),
    integer("n"),
    string("account"),
    string("kind"),  # worker, pod
    string("resource"),  # the endpoint, the pod
    string("state"),
    string("gpu_type"),
    integer("devices"),
    integer("began_ms"),
    integer("ended_ms"),
    integer("billed_ms"),  # 0 where such time is free
    integer("nano_usd"),
    PrimaryKeyConstraint("owner", "boot", "n"),
)
Index("usage_began", usage.c.began_ms)

bills = table(  # usage, spans, disks and volumes, summed by the hour
    "bills",
    string("account"),
    string("kind"),  # endpoint, pod, volume
    integer("hour"),  # since the epoch
    string("resource"),
    string("worker"),
    string("gpu_type"),
    string("data_center"),
    string("image"),
    string("template"),
    integer("billed_ms"),
    integer("nano_usd"),
    PrimaryKeyConstraint(
        "account", "kind", "hour", "resource", "worker", "gpu_type", "data_center", "image", "template"
    ),
)

spaces = table(  # the sizes of disks and volumes over time, until they are billed
    "spaces",
    string("account"),
    string("kind"),  # pod, volume
    string("resource"),
    string("gpu_type"),  # of a pod
    integer("gb"),
    time("began"),
    time("ended"),
    PrimaryKeyConstraint("kind", "resource", "began"),
)
Index("spaces_ended", spaces.c.account, spaces.c.kind, spaces.c.ended)

gpu_days = table(  # GPU time of jobs that are metered, by day
    "gpu_days",
    string("kind"),  # key, endpoint
    string("owner"),  # its id
    integer("day"),  # since the epoch, in UTC
    integer("gpu_ms"),
    PrimaryKeyConstraint("kind", "owner", "day"),
)
Index("gpu_days_day", gpu_days.c.day)

counters = table(
    "counters",
    string("account"),
    string("endpoint"),
    string("name"),
    integer("value"),
    PrimaryKeyConstraint("account", "endpoint", "name"),
)
