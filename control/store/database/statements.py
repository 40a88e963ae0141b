"""The hot statements of statements.sql, with the guards of the job machine; and their two dialects.

A statement is written once. What differs between SQLite and PostgreSQL is a macro in it, and `written`
expands it for one of them:

    {ms SECONDS}     whole milliseconds, cut off as int() does it (PostgreSQL's CAST rounds)
    {skip locked}    rows that another writer holds are passed over; SQLite has one writer
    {share lock}     rows that are read stay as they are until this transaction ends
    {sqlite WORDS}   for SQLite only: what leads its planner to an index, and PostgreSQL's to a wrong one
    {kept}           until when a job that ends at :now is kept: for its retention, within its ttl
    :name            a parameter
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Literal

from msgspec import Struct

from stoker.control.rules.job_states import MOVES

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_GUARD = re.compile(r"\{from (\w+)\}")
_KEPT = "CASE WHEN ttl_at < :now + retention_s THEN ttl_at ELSE :now + retention_s END"


def guard(move: str) -> str:
    """Returns the condition under which `move` may be made. A single state reads `=`, as a partial index
    wants it."""
    states = sorted(MOVES[move].sources)
    if len(states) == 1:
        return f"state = '{states[0]}'"
    return "state IN (" + ", ".join(f"'{state}'" for state in states) + ")"


def _load() -> dict[str, str]:
    whole = files("stoker.control.store.database").joinpath("statements.sql").read_text(encoding="utf-8")
    _, *pairs = _NAME.split(whole)
    return {
        name: _GUARD.sub(lambda found: guard(found[1]), body).strip()
        for name, body in zip(pairs[::2], pairs[1::2], strict=True)
    }


STATEMENTS = _load()


class Dialect(Struct, frozen=True):
    """The differences between the two databases."""

    name: Literal["sqlite", "postgresql"]
    begin: str
    """Starts a transaction that will write."""
    begin_read: str
    """Starts one that sees one snapshot."""
    milliseconds: str
    skip_locked: str
    share_lock: str


SQLITE = Dialect(
    name="sqlite",
    begin="BEGIN IMMEDIATE",  # it takes the write lock now, so that it cannot fail later
    begin_read="BEGIN",
    milliseconds=r"CAST((\1) * 1000 AS INTEGER)",
    skip_locked="",
    share_lock="",
)
POSTGRESQL = Dialect(
    name="postgresql",
    begin="BEGIN ISOLATION LEVEL READ COMMITTED",  # and READ ONLY, where the operator has set that
    begin_read="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    milliseconds=r"CAST(TRUNC((\1) * 1000) AS BIGINT)",
    skip_locked="FOR UPDATE SKIP LOCKED",
    share_lock="FOR SHARE",
)

_MILLISECONDS = re.compile(r"\{ms ([^}]+)\}")
_SQLITE_ONLY = re.compile(r"\{sqlite ([^}]+)\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


def written(statement: str, dialect: Dialect) -> str:
    """Returns the statement of this name, or this text, as the driver of `dialect` takes it."""
    text = STATEMENTS.get(statement, statement)
    text = text.replace("{kept}", _KEPT).replace("{skip locked}", dialect.skip_locked)
    text = text.replace("{share lock}", dialect.share_lock)
    text = _MILLISECONDS.sub(dialect.milliseconds, text)
    text = _SQLITE_ONLY.sub(r"\1" if dialect is SQLITE else "", text)
    if dialect is POSTGRESQL:
        text = _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
    return text


class Written(dict[str, str]):
    """The statements written in a dialect, each of them once."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self.dialect = dialect

    def __missing__(self, statement: str) -> str:
        text = self[statement] = written(statement, self.dialect)
        return text
