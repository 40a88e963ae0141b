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


def two_failed_starts_in_a_row_are_unhealthy(m: Any) -> None:
    assert [decision.unhealthy for decision, _ in failing(m, 4)] == [False, True, True, True]


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


def died(m: Any, at: float, *jobs: str) -> Any:
    return m.Died(at, "died", 1.0, served=False, jobs=frozenset(jobs))


def deaths_of(m: Any, *lives: tuple[str, ...]) -> tuple[Any, list[float], list[bool]]:
    """What they lead to, how long each waits, and whether it is unhealthy then."""
    history, at, waits, verdicts = m.History(), 0.0, [], []
    for jobs in lives:
        history, decision = m.decide(history, died(m, at, *jobs))
        waits.append(decision.at - at)
        verdicts.append(decision.unhealthy)
        at = decision.at
    return history, waits, verdicts


def the_deaths_of_one_job_count_once(m: Any) -> None:
    history, waits, verdicts = deaths_of(m, *[("p",)] * 8)
    assert (history.row, waits, verdicts) == (1, [0.0] * 8, [False] * 8)
    assert len(history.recent) == 1
    history, waits, verdicts = deaths_of(m, ("p",), ("p",), ("q",), ("p",), ("q",), ("r",), ("q",))
    assert (history.row, waits) == (3, [0, 0, 1, 1, 1, 2, 2]), "in whatever order they are tried again"
    assert verdicts == [False] * 5 + [True] * 2


def a_job_is_no_cause_of_a_death_that_it_has_not_seen(m: Any) -> None:
    """Each meets the one before it, and no job has seen all: neighbours are tried again, too."""
    history, _, verdicts = deaths_of(m, ("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("f",))
    assert (history.row, verdicts[-1]) == (3, True)
    assert deaths_of(m, ("a", "b"), ("b", "c"), ("a", "c"))[0].row == 2
    assert deaths_of(m, (), (), ())[0].row == 3, "nobody is to blame, so it is"


def a_service_forgets_the_jobs_that_died_before(m: Any) -> None:
    history, _, _ = deaths_of(m, ("p",))
    history, _ = m.decide(history, m.Died(50.0, "segfault", 1.0, served=True))
    history, decision = m.decide(history, died(m, 51.0, "p"))
    assert (history.row, decision.at, len(history.recent)) == (1, 51.0, 2)


def starts_that_fail_are_counted_though_jobs_die_too(m: Any) -> None:
    history, _, _ = deaths_of(m, ("p",), ("p",))
    for row in (2, 3):
        history, decision = m.decide(history, m.StartFailed(100.0, "no driver"))
        assert (history.row, decision.unhealthy) == (row, True)
    history, decision = m.decide(history, died(m, 200.0, "p"))
    assert (history.row, decision.at, decision.unhealthy) == (3, 202.0, True)


def what_is_remembered_of_jobs_has_an_end(m: Any) -> None:
    history, _, _ = deaths_of(m, *[(f"j{n}",) for n in range(100)])
    assert len(history.suspects) == 16
    assert history.suspects[-1] == {"j99"}


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


def the_cause_is_reported_and_what_was_printed_last_where_it_is_not_reported(m: Any) -> None:
    reported = m.crash_reason("RuntimeError: no driver\nTraceback", True, ("loading", "done"))
    assert reported == "crash loop: RuntimeError: no driver"
    assert m.crash_reason("exited with status 1", False, ("a", "ImportError: torch")) == (
        "crash loop: ImportError: torch (exited with status 1)"
    )
    assert m.crash_reason("exited with status 1", False, ()) == "crash loop: exited with status 1"


def by_random_histories(m: Any, lives: int = 200) -> None:
    for seed in range(lives):
        walk(m, Random(seed).choice)


def walk(m: Any, draw: Any) -> None:
    history, at = m.History(), 0.0
    jobs = [frozenset[str](), frozenset("p"), frozenset("pq"), frozenset("r")]
    for _ in range(20):
        at += draw([0.0, 1.0, 30.0, 500.0])
        kind = draw(["failed", "died", "healthy", "stopped"])
        happened = (
            m.StartFailed(at, "a")
            if kind == "failed"
            else m.WasStopped(at, "d")
            if kind == "stopped"
            else m.Died(at, "b", 100.0 if kind == "healthy" else 1.0, served=False, jobs=draw(jobs))
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


RANDOM = [lambda m: by_random_histories(m, 40)]

MUTANTS = [
    ("no longest wait", "LONGEST_S = 60.0", "LONGEST_S = 600.0"),
    ("linear waits", "2 ** min(failures - 1, 16)", "failures"),
    ("never unhealthy", "history.row >= IN_A_ROW or ", ""),
    ("two failed starts are not enough", "STARTS_IN_A_ROW = 2", "STARTS_IN_A_ROW = 3"),
    ("one failed start is enough", "STARTS_IN_A_ROW = 2", "STARTS_IN_A_ROW = 1"),
    ("the window does not count", " or len(history.recent) >= IN_WINDOW", ""),
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
    ("each death of a job counts", "if not any(one & jobs for one in history.suspects)", "if True"),
    ("only the last death is remembered", "(*history.suspects, jobs)[", "(jobs,)["),
    ("neighbours are suspects for ever", "one & jobs or one for", "one for"),
    ("all jobs are remembered", "[-SUSPECTS_MAX:]", "[:]"),
    ("the next death of a job does not wait", "back_off(history.row - 1)", "0.0"),
    (
        "a job that dies again makes it well",
        "(history.row - 1), why, unhealthy=_unhealthy(after))",
        "(history.row - 1), why)",
    ),
    ("the last line is all that counts", "if reported or not log_tail", "if not log_tail"),
]
