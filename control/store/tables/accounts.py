"""The tables of accounts, their keys and the audit log; and `meta`, the values of the database itself."""

from __future__ import annotations

from sqlalchemy import Column, Index, LargeBinary, Text

from stoker.control.store.tables.columns import INTEGER, TIME, account, string, table, time

meta = table("meta", Column("name", Text, primary_key=True), Column("value", LargeBinary, nullable=False))

accounts = table("accounts", Column("id", Text, primary_key=True), time("created_at"))

keys = table(
    "keys",
    Column("id", Text, primary_key=True),
    account(),
    string("kind"),  # key, join, node
    string("name"),
    Column("hash", LargeBinary, nullable=False),
    time("created_at"),
    Column("expires_at", TIME),
    Column("revoked_at", TIME),
    string("access", default="{}"),  # JSON: control.rules.access
    Column("last_used_at", TIME),
    Column("uses_left", INTEGER),  # of a join token; NULL: any number
    string("quota", default="{}"),  # JSON: control.rules.quotas
    Column("priority", Text),  # the highest class that it may submit; NULL: by its scope
)

audit = table(  # requests to the management API, and their keys
    "audit",
    Column("n", INTEGER, primary_key=True, autoincrement=True),
    account(),
    string("key"),
    time("at"),
    string("method"),
    string("path"),
    Column("status", INTEGER),  # NULL: not answered yet
    string("said"),  # the message of a refusal
)
Index("audit_at", audit.c.at)
