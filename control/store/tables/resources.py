"""The tables of what the management API makes: templates, volumes, logins, secrets, pods and endpoints."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, PrimaryKeyConstraint, Text

from stoker.control.store.tables.columns import INTEGER, TIME, account, integer, sealed, string, table, time

templates = table(
    "templates",
    Column("id", Text, primary_key=True),
    account(),
    string("name"),
    sealed("body"),  # JSON: its env may hold secrets
    time("created_at"),
    time("changed_at"),
    Column("deleted_at", TIME),
)
Index("templates_account", templates.c.account)

volumes = table(
    "volumes",
    Column("id", Text, primary_key=True),
    account(),
    string("name"),
    string("data_center"),
    integer("size_gb"),
    time("created_at"),
    Column("used_bytes", INTEGER),
    Column("measured_at", TIME),
    Column("deleted_at", TIME),
    time("billed_to"),
)
Index("volumes_account", volumes.c.account)

registries = table(
    "registries",
    Column("id", Text, primary_key=True),
    account(),
    string("name"),
    sealed("login"),  # JSON: username, password
    time("created_at"),
)
Index("registries_account", registries.c.account)

secrets = table(
    "secrets",
    account(),
    string("name"),
    sealed("value"),
    time("created_at"),
    time("changed_at"),
    PrimaryKeyConstraint("account", "name"),
)

pods = table(
    "pods",
    Column("id", Text, primary_key=True),
    account(),
    string("name"),
    string("wish"),  # RUNNING, EXITED, TERMINATED
    integer("version"),
    integer("restarts", 0),
    sealed("body"),  # JSON: the request
    string("node"),  # "": none yet
    string("devices"),  # JSON: their uuids
    string("gpu_type"),  # their name; "": none
    string("seen"),  # JSON: what its node last reported of its container
    time("created_at"),
    time("changed_at"),
    string("change"),  # a sentence about the last change
    Column("started_at", TIME),
    Column("ended_at", TIME),
    integer("forgotten", 0),  # its node has removed all of it
    integer("revision", 0),  # the number of its changes
    time("billed_to"),
)
Index("pods_account", pods.c.account, pods.c.forgotten)
Index("pods_node", pods.c.node, pods.c.forgotten)

endpoints = table(
    "endpoints",
    Column("id", Text, primary_key=True),
    account(),
    string("name"),
    integer("version"),
    integer("hosted"),
    integer("workers_min"),
    integer("workers_max"),
    integer("idle_timeout_s"),
    integer("execution_timeout_ms"),
    integer("ttl_ms", 86_400_000),
    integer("max_attempts", 3),
    integer("handler_retries", 0),
    integer("enabled", 1),
    time("changed_at"),
    string("origin"),  # file, api; gone: was of the file, and was deleted for good
    string("type"),  # QUEUE, LOAD_BALANCER
    string("scaler_type"),
    integer("scaler_value"),
    string("template"),  # "": none
    string("asked"),  # JSON: the request to the management API, which reads return
    time("created_at"),
    string("quota", default="{}"),  # JSON: control.rules.quotas
    string("api_key", default=""),  # the id of the key that created it
    integer("keep_cases", 0),  # of its jobs that fail
)

endpoint_versions = table(
    "endpoint_versions",
    string("endpoint", ForeignKey("endpoints.id")),
    integer("version"),
    sealed("run"),  # JSON: its env may hold secrets
    time("created_at"),
    PrimaryKeyConstraint("endpoint", "version"),
)
