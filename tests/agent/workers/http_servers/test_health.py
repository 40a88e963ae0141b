"""The health of an http worker: named examples, and any order of probes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stoker.agent.workers.http_servers import health
from stoker.agent.workers.http_servers.environment import health_path, http_environment, ports_needed
from stoker.agent.workers.http_servers.health import Announce, Probe, Probed, Replace, Replaced, Tick
from stoker.wire.messages import WorkerSpec

REPLACE_S = 60.0


def life(*answers: int | None, replace_s: float = REPLACE_S) -> list[tuple[float, health.Command]]:
    """The commands of a worker that answers its probes so at once, and when."""
    state, told = health.begin(0.0), []
    for status in answers:
        at = health.wake_at(state)
        if at is None:
            break
        state, commands = health.step(state, Tick(at), replace_s)
        told += [(at, command) for command in commands]
        state, commands = health.step(state, Probed(at, status, "nobody listens"), replace_s)
        told += [(at, command) for command in commands]
    return [(round(at, 3), command) for at, command in told if not isinstance(command, Probe)]


def test_it_is_ready_with_its_first_200_and_probed_often_until_then() -> None:
    assert life(None, None, 204, 404, 200, 200) == [(0.4, Announce())]


def test_it_is_out_of_rotation_with_the_first_other_answer_and_back_with_the_next_200() -> None:
    told = life(200, 500, 503, 200, 200, None, 200)
    assert told == [
        (0.0, Announce()),
        (1.0, Announce("its health check answers 500")),
        (3.0, Announce()),
        (5.0, Announce("its health check fails: nobody listens")),
        (6.0, Announce()),
    ]


def test_a_worker_may_initialise_again() -> None:
    assert life(200, 204)[-1][1] == Announce("it initialises again: its health check answers 204")


def test_a_server_without_the_path_is_not_waited_for_until_its_start_deadline() -> None:
    [(at, told)] = life(None, 404, *[405, 404] * 200)
    assert at == 30.1
    assert isinstance(told, Replace)
    assert told.why.startswith(
        "its server has no health check: it answers 404 to GET /ping, for 30 s. It must"
    )
    assert life(*[404] * 290, 503, *[404] * 290) == []
    assert life(*[404] * 290, 200) == [(29.0, Announce())]


def test_one_that_stays_unhealthy_is_replaced_once() -> None:
    told = life(200, *[500] * 100)
    assert told[-1] == (61.0, Replace("its health check answers 500, for 60 s"))
    assert len(told) == 3


@given(st.lists(st.sampled_from([200, 200, 204, 404, 500, None]), max_size=30), st.floats(0.5, 10))
def test_any_life(answers: list[int | None], replace_s: float) -> None:
    told = life(*answers, replace_s=replace_s)
    announced = [command.why for _, command in told if isinstance(command, Announce)]
    assert all(bool(before) != bool(after) for before, after in pairwise(announced))
    assert not announced or not announced[0]
    assert sum(isinstance(command, Replace) for _, command in told) <= 1
    assert not told or not any(isinstance(command, Replace) for _, command in told[:-1])


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 3), st.sampled_from([200, 204, 500, None])), max_size=40)
)
def test_no_two_probes_at_a_time_whatever_comes_when(
    events: list[tuple[bool, float, int | None]],
) -> None:
    state, at, under_way = health.begin(0.0), 0.0, False
    for tick, later, status in events:
        at += later
        event: health.Event = Tick(at) if tick else Probed(at, status)
        state, commands = health.step(state, event, REPLACE_S)
        if not tick:
            under_way = False
        if Probe() in commands:
            assert not under_way
            under_way = True
        assert isinstance(state, Replaced) or (health.wake_at(state) is None) == under_way


def test_the_ports_of_its_environment() -> None:
    spec = WorkerSpec(
        "w1", "app", 1, "/app", env={"PORT": "80", "A": "1", "RUNPOD_POD_ID": "mine"}, kind="http"
    )
    told = http_environment(spec, 20_001, 20_002)
    assert (told["PORT"], told["PORT_HEALTH"], told["A"], told["RUNPOD_POD_ID"]) == (
        "20001",
        "20002",
        "1",
        "w1",
    )
    assert [
        ports_needed(env) for env in ({}, {"PORT_HEALTH": "81"}, {"PORT": "81", "PORT_HEALTH": "81"})
    ] == [1, 2, 1]
    assert [health_path(env) for env in ({}, {"HEALTH_CHECK_PATH": "ok"}, {"HEALTH_CHECK_PATH": "/a/b"})] == [
        "/ping",
        "/ok",
        "/a/b",
    ]
