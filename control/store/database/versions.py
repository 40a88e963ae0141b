"""The version of the tables, and whether a Stoker works with them. Pure.

Each release only adds to the tables, and takes away what the release before does not use any more: expand
first, contract later. So a Stoker works on beside tables of a later version, down to the version that the
tables themselves name.
"""

from __future__ import annotations

from msgspec import Struct


class Tables(Struct, frozen=True):
    """Tables of a version. `works_from`: the earliest version whose Stoker works with them."""

    version: int
    works_from: int


def suit(found: Tables, wanted: int) -> bool:
    """Returns whether the Stoker of version `wanted` works with these tables as they are."""
    return found.works_from <= wanted <= found.version


def upgrade_refusal(found: Tables, wanted: Tables, *, control_runs: bool) -> str:
    """Returns why the tables that were found may not be upgraded now, or an empty text. A control that runs
    beside earlier tables is of their version: a later one upgrades them when it starts."""
    if not control_runs or found.version >= wanted.works_from:
        return ""
    return (
        f"a control of schema version {found.version} has it open, which would not be ready beside tables of"
        f" version {wanted.version}, and would not start again: stop it first"
    )
