"""What must hold of the restart policy. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from random import Random
from typing import Any


def failing(m: Any, times: int, spacing: float = 0.0) -> list[Any]:
    history, at, decisions = m.History(), 0.0, []
    for _ in range(times):
        history, decision = m.decide(history, m.StartFailed(at, "no driver"))
        decisions.append((decision, at))
        at = decision.at + spacing
    return decisions


def waits_double_to_a_minute(m: Any) -> None:
    waits = [decision.at - at for decision, at in failing(m, 9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def three_in_a_row_are_unhealthy(m: Any) -> None:
    assert [decision.unhealthy for decision, _ in failing(m, 4)] == [False, False, True, True]


def five_in_ten_minutes_are_unhealthy_though_it_served_in_between(m: Any) -> None:
    history, verdicts = m.History(), []
    for n in range(5):
        history, decision = m.decide(history, m.StartFailed(n * 100.0, "flaky"))
        verdicts.append(decision.unhealthy)
        history, healthy = m.decide(history, m.Died(n * 100.0 + 50, "died", 40.0, served=True))
        assert not healthy.unhealthy
    assert verdicts == [False, False, False, False, True]


def old_failures_are_forgotten(m: Any) -> None:
    history = m.History()
    for n in range(12):
        history, decision = m.decide(history, m.StartFailed(n * 200.0, "flaky"))
        assert not decision.unhealthy
        history, _ = m.decide(history, m.Died(n * 200.0 + 100, "died", 40.0, served=False))


def a_healthy_worker_starts_again_at_once(m: Any) -> None:
    history, _ = m.decide(m.History(), m.StartFailed(0.0, "x"))
    for served, ready_for in ((True, 0.1), (False, m.HEALTHY_S)):
        after, decision = m.decide(history, m.Died(50.0, "segfault", ready_for, served))
        assert (decision.at, decision.why, after.row) == (50.0, "segfault", 0)


def an_early_death_is_let_off_once(m: Any) -> None:
    history, first = m.decide(m.History(), m.Died(10.0, "died", 1.0, served=False))
    history, second = m.decide(history, m.Died(11.0, "died", 1.0, served=False))
    assert (first.at, second.at) == (10.0, 12.0)
    assert not second.unhealthy
    _, third = m.decide(history, m.Died(13.0, "died", 1.0, served=False))
    assert (third.at, third.unhealthy) == (15.0, True)


def what_the_agent_did_is_no_failure(m: Any) -> None:
    history, _ = m.decide(m.History(), m.StartFailed(0.0, "x"))
    assert m.decide(history, m.WasStopped(5.0, "stuck")) == (history, m.RestartDecision(5.0, "stuck"))


def a_life_that_served_makes_up_for_what_was_before(m: Any) -> None:
    history, _ = m.decide(m.History(), m.StartFailed(0.0, "x"))
    history, _ = m.decide(history, m.StartFailed(1.0, "x"))
    after, decision = m.decide(history, m.WasStopped(50.0, "after 100 jobs", served=True))
    assert (decision.at, decision.unhealthy, after.row) == (50.0, False, 0)
    assert len(after.recent) == 2, "the window remembers"
    _, next_failure = m.decide(after, m.StartFailed(60.0, "x"))
    assert (next_failure.at, next_failure.unhealthy) == (61.0, False)


def the_cause_is_said_and_what_was_printed_last_where_it_is_not_told(m: Any) -> None:
    said = m.crash_words("RuntimeError: no driver\nTraceback", True, ("loading", "done"))
    assert said == "crash loop: RuntimeError: no driver"
    assert m.crash_words("exited with status 1", False, ("a", "ImportError: torch")) == (
        "crash loop: ImportError: torch (exited with status 1)"
    )
    assert m.crash_words("exited with status 1", False, ()) == "crash loop: exited with status 1"


def by_random_histories(m: Any, lives: int = 200) -> None:
    for seed in range(lives):
        walk(m, Random(seed).choice)


def walk(m: Any, draw: Any) -> None:
    history, at = m.History(), 0.0
    for _ in range(20):
        at += draw([0.0, 1.0, 30.0, 500.0])
        kind = draw(["failed", "died", "healthy", "stopped"])
        happened = (
            m.StartFailed(at, "a")
            if kind == "failed"
            else m.WasStopped(at, "d")
            if kind == "stopped"
            else m.Died(at, "b", 100.0 if kind == "healthy" else 1.0, served=False)
        )
        history, decision = m.decide(history, happened)
        assert 0 <= decision.at - at <= 60
        assert decision.why == happened.why
        if kind in ("healthy", "stopped"):
            assert decision.at == at
            assert not decision.unhealthy
        if kind == "failed":
            assert decision.at >= at + 1
        assert all(at - then <= 600 for then in history.recent) or kind == "stopped"
        at = decision.at


EXAMPLES = [
    waits_double_to_a_minute,
    three_in_a_row_are_unhealthy,
    five_in_ten_minutes_are_unhealthy_though_it_served_in_between,
    old_failures_are_forgotten,
    a_healthy_worker_starts_again_at_once,
    an_early_death_is_let_off_once,
    what_the_agent_did_is_no_failure,
    a_life_that_served_makes_up_for_what_was_before,
    the_cause_is_said_and_what_was_printed_last_where_it_is_not_told,
]
ALL = [*EXAMPLES, lambda m: by_random_histories(m, 40)]

MUTANTS = [
    ("no longest wait", "LONGEST_S = 60.0", "LONGEST_S = 600.0"),
    ("linear waits", "2 ** min(failures - 1, 16)", "failures"),
    ("never unhealthy", "after.row >= IN_A_ROW or ", ""),
    ("the window does not count", " or len(after.recent) >= IN_WINDOW", ""),
    ("a healthy time forgives nothing", "return History(0, _recent", "return History(history.row, _recent"),
    ("nothing is let off", "waits_for=history.row)", "waits_for=history.row + 1)"),
    ("nothing is ever forgotten", "if at - then < WINDOW_S", "if True"),
    (
        "the agent's own kill counts",
        "            return after, RestartDecision(at, why)\n        case Died(",
        "            return _failed(history, at, why, waits_for=history.row + 1)\n        case Died(",
    ),
    ("a planned end forgives nothing", "if served else history", "if False else history"),
    ("a planned end forgives all", "if served else history", "if True else history"),
    ("the last line is all that counts", "if told or not log_tail", "if not log_tail"),
]
