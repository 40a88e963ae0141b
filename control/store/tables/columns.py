"""The columns that tables are made of, the same for SQLite and PostgreSQL; `metadata` collects the tables."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    REAL,
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

metadata = MetaData()

# STRICT tables of SQLite know five types only.
INTEGER = BigInteger().with_variant(Integer(), "sqlite")
TIME: TypeEngine[float] = Double().with_variant(REAL(), "sqlite")


def table(name: str, *parts: Any) -> Table:
    return Table(name, metadata, *parts, sqlite_strict=True)


def integer(name: str, default: int | None = None) -> Column[int]:
    if default is None:
        return Column(name, INTEGER, nullable=False)
    return Column(name, INTEGER, nullable=False, server_default=str(default))


def string(name: str, *parts: Any, default: str | None = None) -> Column[str]:
    return Column(name, Text, *parts, nullable=False, server_default=default)


def sealed(name: str, *, nullable: bool = False) -> Column[bytes]:
    """Returns a column of values that are sealed with the secret key, as its rotation finds it."""
    return Column(name, LargeBinary, nullable=nullable, info={"sealed": True})


def time(name: str) -> Column[float]:
    """Returns a column of seconds since the epoch, set by the caller."""
    return Column(name, TIME, nullable=False)


def job(**options: Any) -> Column[int]:
    """Returns the column of the job that a row is deleted with."""
    return Column("seq", INTEGER, ForeignKey("jobs.seq", ondelete="CASCADE"), nullable=False, **options)


def reference() -> tuple[Column[Any], ...]:
    """Returns the columns of the object that holds a large payload or save."""
    return Column("ref_key", Text), Column("ref_size", INTEGER), Column("ref_sha256", Text)


def account() -> Column[str]:
    return string("account", ForeignKey("accounts.id"))


def where(condition: str) -> dict[str, Any]:
    """Limits an index to the rows that match; `database.postgres` does the same in its dialect."""
    return {"sqlite_where": text(condition)}
