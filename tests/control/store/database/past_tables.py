"""The tables of past releases, with rows, as `schemas/write.py` wrote them; made anew in either database."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from stoker.control.store.database.secrets import Encryption

FOLDER = Path(__file__).parent / "schemas"
VERSIONS = sorted(int(path.stem) for path in FOLDER.glob("*.json"))

Row = Mapping[str, Any]


@dataclass(frozen=True)
class PastTables:
    """The tables of a release. `tokens` are a key, a join token and the webhook secret, as their owners have
    them."""

    version: int
    secret_key: str
    tokens: Mapping[str, str]
    tables: Mapping[str, list[str]]
    rows: Mapping[str, list[Row]]

    @classmethod
    def of(cls, version: int) -> PastTables:
        return cls(**json.loads((FOLDER / f"{version}.json").read_text(), object_hook=_bytes))

    @property
    def secrets(self) -> Encryption:
        return Encryption(self.secret_key)

    def make(self, where: str) -> None:
        """Makes the tables in a database that has none: a path, or a URL of PostgreSQL."""
        if "://" in where:
            with psycopg.connect(where) as server:
                self._fill(server, "postgresql", "%s")
            return
        file = sqlite3.connect(where)
        with file:
            self._fill(file, "sqlite", "?")
        file.close()

    def _fill(self, conn: Any, dialect: str, mark: str) -> None:
        for statement in self.tables[dialect]:
            conn.execute(statement)
        for table, rows in self.rows.items():
            for row in rows:
                marks = ", ".join([mark] * len(row))
                conn.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
        if dialect == "postgresql":
            for name in ("jobs.seq", "audit.n"):
                table, column = name.split(".")
                counter = f"pg_get_serial_sequence('{table}', '{column}')"
                conn.execute(
                    f"SELECT setval({counter}, 1 + (SELECT COALESCE(MAX({column}), 0) FROM {table}))"
                )


def _bytes(found: dict[str, Any]) -> Any:
    return base64.b64decode(found["base64"]) if set(found) == {"base64"} else found
