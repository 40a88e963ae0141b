"""The whole schema: `metadata` with every table, and its version. `control.store` has the queries."""

from stoker.control.store.tables import accounts, billing, columns, jobs, nodes, resources  # noqa: F401

SCHEMA_VERSION = 15

WORKS_FROM = 11
"""The earliest version whose Stoker works with these tables. A release that only adds to them leaves it as it
is; one that takes a column away sets it to the first version that did without."""

metadata = columns.metadata
