"""Pairs of transactions in two processes on one PostgreSQL database, stopped after every statement."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from stoker.control import store
from stoker.control.nodes import joining
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.control.store import Conn
from stoker.control.store.resources import keys
from stoker.wire.messages import Hello
from tests.control.store.two_writers import TwoWriters

Pair = tuple[Callable[[Conn], Any], Callable[[Conn], Any]]


@pytest.fixture
def database() -> str:
    return "postgres"


@pytest.fixture
def stopped_everywhere(new_bench: Callable[[], Any], postgres: Any) -> Any:
    """Runs the pair that `make` makes in a new bench, once for each statement after which its first
    transaction can be stopped, and in both orders unless they are alike; calls `check` after each run."""

    def run(make: Callable[[Any], Pair], check: Callable[[Any, Any, Any], None], *, alike: bool) -> int:
        runs = 0
        for turned in (False,) if alike else (False, True):
            for after in itertools.count(1):
                bench = new_bench()
                pair = make(bench)
                writers = TwoWriters(bench, postgres.url(bench.store.writer.raw.info.dbname))
                ends, reached = writers.interleaved(after, *(reversed(pair) if turned else pair))
                check(bench, *((ends.second, ends.first) if turned else (ends.first, ends.second)))
                writers.close()
                bench.store.close()
                runs += 1
                if not reached:
                    break
        return runs

    return run


def opens(boot: str = "boot-1", node: str = "n1") -> Callable[[Conn], int | str]:
    """A Hello of a node that holds nothing."""

    def hello(conn: Conn) -> int | str:
        session = store.open_session(
            conn, node=node, boot=boot, name=node, devices=(), facts={}, now=5.0, lease_s=60.0
        )
        if isinstance(session, int):
            store.reconcile(conn, node=node, session=session, reported=(), now=5.0)
        return session

    return hello


def claims(bench: Any) -> Callable[[Conn], Any]:
    slot = bench.slot()
    return lambda conn: store.claim(conn, [slot], 4.0)


def loses(conn: Conn) -> Any:
    return store.requeue_node(conn, "n1", 1, 4.0, "its connection broke")


def row_of_node(bench: Any, node: str = "n1") -> tuple[int, int]:
    ((session, alive),) = bench.rows(f"SELECT session, alive FROM nodes WHERE id = '{node}'")
    return session, alive


def states(bench: Any) -> list[str]:
    return [state for (state,) in bench.rows("SELECT state FROM jobs")]


def test_of_one_nodes_hellos_at_two_writers_each_gets_a_session_of_its_own(stopped_everywhere: Any) -> None:
    def check(bench: Any, one: Any, two: Any) -> None:
        assert sorted((one, two)) == [2, 3]
        assert row_of_node(bench) == (3, 1)

    assert stopped_everywhere(lambda _: (opens(), opens()), check, alike=True) > 2


def test_of_two_boots_of_an_unknown_node_one_is_refused(stopped_everywhere: Any) -> None:
    def check(bench: Any, one: Any, two: Any) -> None:
        session, refusal = (one, two) if isinstance(one, int) else (two, one)
        assert session == 1
        assert "node n2 (n2) is connected already, from another start of its agent" in refusal
        assert row_of_node(bench, "n2") == (1, 1)

    stopped_everywhere(lambda _: (opens("a", "n2"), opens("b", "n2")), check, alike=True)


def test_a_job_claimed_while_its_node_opens_a_session_is_held_by_nobody_else(stopped_everywhere: Any) -> None:
    """The new session knows nothing of the job, so it must lie in the queue again."""

    def make(bench: Any) -> Pair:
        bench.submit(1.0)
        return claims(bench), opens()

    def check(bench: Any, claimed: Any, session: Any) -> None:
        assert session == 2
        assert len(claimed) <= 1
        assert states(bench) == ["IN_QUEUE"]

    stopped_everywhere(make, check, alike=False)


def test_a_job_claimed_while_its_node_is_given_up_lies_in_the_queue(stopped_everywhere: Any) -> None:
    def make(bench: Any) -> Pair:
        bench.submit(1.0)
        return claims(bench), loses

    def check(bench: Any, claimed: Any, changed: Any) -> None:
        assert len(claimed) == len(changed)
        assert states(bench) == ["IN_QUEUE"]
        assert row_of_node(bench) == (2, 0)

    stopped_everywhere(make, check, alike=False)


def test_a_node_that_comes_back_while_it_is_given_up_stays(stopped_everywhere: Any) -> None:
    def check(bench: Any, session: Any, changed: Any) -> None:
        assert row_of_node(bench) == (session, 1)

    stopped_everywhere(lambda _: (opens(), loses), check, alike=False)


def test_a_join_token_of_one_use_lets_one_of_two_nodes_in(stopped_everywhere: Any) -> None:
    def joins(token: str, node: str) -> Callable[[Conn], str]:
        def join(conn: Conn) -> str:
            store.add_node(conn, Hello(1, node, node, "boot-1", "1", (), {}), 2.0)
            return joining.join(conn, token, node, 2.0)

        return join

    def make(bench: Any) -> Pair:
        _, once = bench.do(lambda conn: keys.create_join_token(conn, name="hosts", now=1.0, uses=1))
        return joins(once, "n2"), joins(once, "n3")

    def check(bench: Any, one: Any, two: Any) -> None:
        refused, joined = (one, two) if isinstance(one, joining.JoinRefused) else (two, one)
        assert str(refused).endswith(
            "has been used as often as it may be: make another with `stoker key create --join`"
        )
        assert joined.startswith("nk_")
        assert [record.uses_left for record in keys.list_keys(bench.store.writer, "join")] == [0]
        assert bench.rows("SELECT count(*) FROM nodes WHERE id <> 'n1'") == [(1,)]

    stopped_everywhere(make, check, alike=True)


def test_two_changes_of_one_endpoint_are_two_versions(stopped_everywhere: Any) -> None:
    def puts(handler: str) -> Callable[[Conn], Endpoint]:
        changed = Endpoint("echo", "default", "echo", 0, EndpointVersion(handler))
        return lambda conn: store.put_endpoint(conn, changed, 2.0)

    def check(bench: Any, one: Any, two: Any) -> None:
        assert sorted((one.version, two.version)) == [2, 3]
        assert bench.endpoint("echo").version == 3
        assert bench.rows("SELECT version FROM endpoint_versions ORDER BY version") == [(1,), (2,), (3,)]

    stopped_everywhere(lambda _: (puts("a.py:handler"), puts("b.py:handler")), check, alike=True)
