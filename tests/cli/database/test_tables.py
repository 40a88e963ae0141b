"""`stoker database status` and `upgrade`, on both databases, with and without a control."""

from __future__ import annotations

from stoker.control.store.tables.schema import SCHEMA_VERSION
from tests.cli.database.conftest import Operator
from tests.control.store.database.past_tables import VERSIONS


def test_status_shows_the_database_and_if_a_control_has_it_open(operator: Operator) -> None:
    with operator.control() as store:
        found = operator.says("database", "status")
        assert found["database"] == store.database.name
        assert (found["schemaFound"], found["schemaWanted"]) == (SCHEMA_VERSION, SCHEMA_VERSION)
        assert found["bytes"] > 10_000
        assert found["controlRuns"]
        assert "control\thas it open" in operator.works("database", "status")
    assert not operator.says("database", "status")["controlRuns"]
    shown = operator.works("database", "status")
    assert f"schema\tversion {SCHEMA_VERSION}, as this Stoker wants it" in shown
    assert "hidden-password" not in shown


def test_an_upgrade_says_what_it_did_once(operator: Operator) -> None:
    first = VERSIONS[0]
    operator.put_tables_of(first)
    assert f"version {first}, and this Stoker wants {SCHEMA_VERSION}: upgrade it" in operator.works(
        "database", "status"
    )
    assert "run stoker database upgrade" in operator.fails("key", "list")
    assert operator.says("database", "status")["schemaFound"] == first, "nothing else upgrades it"
    done = operator.works("database", "upgrade")
    assert (
        f"upgraded from schema version {first} to {SCHEMA_VERSION}: added jobs.backoffs, jobs.api_key" in done
    )
    assert "nothing to do" in operator.works("database", "upgrade")
    assert "laptop" in operator.works("key", "list")


def test_an_upgrade_waits_for_the_end_of_a_control_that_would_not_work_beside_it(operator: Operator) -> None:
    first = VERSIONS[0]
    past = operator.put_tables_of(first)
    with operator.control_of(past):
        refused = operator.fails("database", "upgrade")
        assert f"a control of schema version {first} has it open" in refused
        assert "stop it first" in refused
    assert operator.says("database", "status")["schemaFound"] == first
    operator.works("database", "upgrade")
    with operator.control():
        assert "nothing to do" in operator.works("database", "upgrade")


def test_without_a_store_each_says_so(operator: Operator) -> None:
    for command in ("status", "upgrade"):
        refused = operator.fails("database", command)
        assert "there is no store of a control" in refused or "no tables" in refused or "key file" in refused
        assert "there is no store" not in refused or "so no address (STOKER_URL) will do" in refused
    assert not operator.folder.store.exists()
