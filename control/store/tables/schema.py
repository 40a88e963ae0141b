"""The whole schema: `metadata` with every table, and its version. `control.store` has the queries."""

from stoker.control.store.tables import accounts, billing, columns, jobs, nodes, resources  # noqa: F401

SCHEMA_VERSION = 11

metadata = columns.metadata
