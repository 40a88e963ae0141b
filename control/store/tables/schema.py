"""The whole schema: `metadata` with every table, and its version. `control.store` has the queries."""

from stoker.control.store.tables import accounts, billing, jobs, nodes, resources
from stoker.control.store.tables.columns import metadata

SCHEMA_VERSION = 9

__all__ = ["SCHEMA_VERSION", "accounts", "billing", "jobs", "metadata", "nodes", "resources"]
