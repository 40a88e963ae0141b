"""One text for two databases."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.control.store.database.statements import POSTGRESQL, SQLITE, STATEMENTS, written


def test_macros_read_as_each_database_has_it() -> None:
    text = "SELECT {ms :now - created_at}, x FROM t WHERE a LIKE 'b%' AND c = :c LIMIT 1 {skip locked}"
    assert written(text, SQLITE).rstrip() == (
        "SELECT CAST((:now - created_at) * 1000 AS INTEGER), x FROM t WHERE a LIKE 'b%' AND c = :c LIMIT 1"
    )
    assert written(text, POSTGRESQL) == (
        "SELECT CAST(TRUNC((%(now)s - created_at) * 1000) AS BIGINT), x FROM t WHERE a LIKE 'b%%' "
        "AND c = %(c)s LIMIT 1 FOR UPDATE SKIP LOCKED"
    )


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL], ids=lambda one: str(one.name))
@pytest.mark.parametrize("name", STATEMENTS)
def test_no_macro_is_left(name: str, dialect: Any) -> None:
    text = written(name, dialect)
    assert "{" not in text
    assert "?" not in text
    assert (":" in text) == (dialect is SQLITE)


def test_milliseconds_are_cut_off(bench: Any) -> None:
    """As int() does it: 1.9996 s are 1999 ms."""
    view, _ = bench.submit(10.0)
    bench.claim(11.9996, bench.slot())
    assert bench.view(12.0, view.id).delay_ms == 1999
    later, _ = bench.submit(20.0)
    bench.cancel(21.9996, later.id)
    assert bench.view(22.0, later.id).delay_ms == 1999
