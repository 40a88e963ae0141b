"""The tables of nodes, and of the workers that each was given."""

from __future__ import annotations

from sqlalchemy import Column, Index, Text

from stoker.control.store.tables.columns import TIME, integer, string, table, time

nodes = table(
    "nodes",
    Column("id", Text, primary_key=True),
    string("name"),
    string("boot"),
    integer("session"),
    integer("alive"),
    time("seen_at"),
    time("opened_at"),
    string("devices"),  # JSON
    string("facts"),  # JSON
    string("account", default="default"),
    integer("drained", 0),  # an operator lets nothing new start there
    string("join_key", default=""),  # the token that it joined with
    string("credential", default=""),  # the id of the key with which it reconnects
)

given_workers = table(  # what control had nodes run: it believes them about nothing else
    "given_workers",
    Column("worker", Text, primary_key=True),
    string("node"),
    string("endpoint"),
    integer("version"),
    integer("slots"),
    string("devices"),  # JSON: their uuids
    Column("taken_at", TIME),  # when control stopped desiring it
)
Index("given_workers_node", given_workers.c.node)
Index("given_workers_taken", given_workers.c.taken_at)
