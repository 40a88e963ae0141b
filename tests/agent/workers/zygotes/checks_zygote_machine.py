"""What must hold of a zygote's machine. Each check takes the module, so that mutants can be put to it."""

from __future__ import annotations

from random import Random
from typing import Any


def run(m: Any, *events: Any) -> tuple[Any, list[Any]]:
    state, commands = m.ZygoteState(), []
    for event in events:
        state, more = m.step(state, event)
        commands.extend(more)
    return state, commands


def ready(m: Any, at: float = 3.0) -> Any:
    state, _ = run(m, m.Needed(0.0), m.BecameReady(at))
    return state


def the_first_worker_of_a_set_starts_it_and_all_wait(m: Any) -> None:
    state, commands = run(m, m.Needed(0.0), m.Needed(0.1), m.Needed(0.2))
    assert commands == [m.Start()]
    assert m.availability(state) == m.Importing(m.IMPORT_S)
    assert m.wake_at(state) == m.IMPORT_S
    state, _ = m.step(state, m.BecameReady(3.0))
    assert m.availability(state) == m.Ready(3.0)
    assert (state.users, m.wake_at(state)) == (3, None)


def what_is_refused_stays_refused(m: Any) -> None:
    state, commands = run(m, m.Needed(0.0), m.WasRefused(2.0, "a thread"))
    assert commands == [m.Start(), m.Drop("a thread")]
    for event in (m.Died(2.1, "exited"), m.Left(3.0), m.Needed(9e9), m.Tick(9e9), m.BecameReady(9e9)):
        state, commands = m.step(state, event)
        assert commands == ()
    assert m.availability(state) == m.Fresh("a thread")
    assert m.wake_at(state) is None


def a_dead_zygote_is_tried_again_later_and_later(m: Any) -> None:
    state, at, waits = m.ZygoteState(), 0.0, []
    state, _ = m.step(state, m.Needed(at))
    for _ in range(6):
        state, commands = m.step(state, m.Died(at, "killed"))
        assert commands == ()
        assert m.availability(state) == m.Fresh("its zygote is not there: killed")
        again = m.wake_at(state)
        assert m.step(state, m.Needed(again - 0.01))[1] == ()
        waits.append(again - at)
        at = again
        state, commands = m.step(state, m.Tick(at))
        assert commands == (m.Start(),)
    assert waits == [5, 20, 80, 320, 600, 600]


def without_workers_a_dead_zygote_stays_away(m: Any) -> None:
    state, commands = run(m, m.Needed(0.0), m.Died(1.0, "killed"), m.Left(2.0), m.Tick(99.0))
    assert commands == [m.Start()]
    assert m.wake_at(state) is None
    state, commands = m.step(state, m.Needed(100.0))
    assert commands == (m.Start(),)


def a_healthy_time_forgives(m: Any) -> None:
    state, _ = run(m, m.Needed(0.0), m.Died(0.0, "x"), m.Tick(5.0), m.Died(6.0, "x"), m.Tick(26.0))
    assert state.failures == 2
    state, _ = m.step(state, m.BecameReady(30.0))
    early, _ = m.step(state, m.Died(30.0 + m.HEALTHY_S - 1, "x"))
    late, _ = m.step(state, m.Died(30.0 + m.HEALTHY_S, "x"))
    assert (early.failures, late.failures) == (3, 1)


def imports_that_never_end_are_ended(m: Any) -> None:
    state, _ = run(m, m.Needed(0.0))
    assert m.step(state, m.Tick(m.IMPORT_S - 1)) == (state, ())
    state, commands = m.step(state, m.Tick(m.IMPORT_S))
    assert commands == (m.Drop("its imports took more than 240 s"),)
    assert m.availability(state) == m.Fresh("its zygote is not there: its imports took more than 240 s")


def one_that_forks_nothing_is_ended(m: Any) -> None:
    state, commands = m.step(ready(m), m.Silent(20.0))
    assert commands == (m.Drop("it forked nothing for 15 s"),)
    assert m.wake_at(state) == 25.0
    importing, _ = run(m, m.Needed(0.0))
    assert m.step(importing, m.Silent(20.0)) == (importing, ())


def it_outlives_its_last_worker_by_a_while(m: Any) -> None:
    state, _ = m.step(ready(m), m.Left(10.0))
    assert m.wake_at(state) == 10.0 + m.LINGER_S
    assert m.step(state, m.Tick(10.0 + m.LINGER_S - 1))[1] == ()
    back, _ = m.step(state, m.Needed(500.0))
    assert m.step(back, m.Tick(10.0 + m.LINGER_S)) == (back, ())
    assert isinstance(m.availability(back), m.Ready)
    gone, commands = m.step(state, m.Tick(10.0 + m.LINGER_S))
    assert commands == (m.Drop("no worker of its set is left"),)
    assert m.step(gone, m.Needed(2000.0))[1] == (m.Start(),)


def late_news_changes_nothing(m: Any) -> None:
    state, _ = m.step(ready(m), m.Left(10.0))
    gone, _ = m.step(state, m.Tick(10.0 + m.LINGER_S))
    for event in (
        m.Died(2000.0, "dropped"),
        m.BecameReady(2000.0),
        m.WasRefused(2000.0, "x"),
        m.Silent(2000.0),
    ):
        assert m.step(gone, event) == (gone, ())


def a_set_is_its_imports_its_environment_and_its_kind(m: Any) -> None:
    one = m.import_set(("torch", "numpy", "torch"), {"A": "1", "B": "2"}, accelerated=True)
    assert one == m.ImportSet(("numpy", "torch"), (("A", "1"), ("B", "2")), True)
    assert one == m.import_set(("numpy", "torch"), {"B": "2", "A": "1"}, accelerated=True)
    assert one != m.import_set(("numpy", "torch"), {"A": "1", "B": "3"}, accelerated=True)
    assert one != m.import_set(("numpy", "torch"), {"A": "1", "B": "2"}, accelerated=False)
    assert one != m.import_set(("numpy", "torch"), {"A": "1", "B": "2"}, accelerated=True, owner="e")


def what_brings_code_is_started_fresh(m: Any) -> None:
    for name in (
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "PYTHONUSERBASE",
    ):
        fresh = m.import_set(("torch",), {"A": "1", name: "/x"}, accelerated=False)
        assert isinstance(fresh, m.Fresh)
        assert fresh.why.startswith(f"its endpoint declares {name}, which")
    harmless = {"PYTHONUNBUFFERED": "1", "MY_LD_PRELOAD": "x", "MY_PYTHONPATH": "x"}
    assert isinstance(m.import_set(("torch",), harmless, accelerated=False), m.ImportSet)


def a_name_that_does_not_fit_is_started_fresh(m: Any) -> None:
    fits = m.import_set(("torch",), {}, accelerated=False, name="w" * m.MARK_ROOM)
    assert isinstance(fits, m.ImportSet)
    assert isinstance(m.import_set(("torch",), {}, accelerated=False, name="é" * m.MARK_ROOM), m.Fresh)


def the_users_own_modules_win(m: Any) -> None:
    loaded, origins = ("torch", "yaml", "queue"), {"torch": "/site/torch/__init__.py"}
    assert m.unfit(loaded, origins, "/h", ["handler", "models"]) is None
    reported = m.unfit(loaded, origins, "/h", ["yaml", "handler", "queue"])
    assert reported == "queue, yaml of the handler's folder would be hidden by what is preloaded"
    assert m.unfit(loaded, origins, "/si", []) is None
    assert m.unfit(loaded, origins, "/site", []) == (
        "torch lies in the handler's folder /site: user code is not preloaded"
    )
    assert m.unfit(loaded, origins, "/", []) is not None


def by_random_lives(m: Any, lives: int = 300) -> None:
    for seed in range(lives):
        walk(m, Random(seed).choice)


def walk(m: Any, draw: Any) -> None:
    """The shell's view: it starts and ends processes as told, and no two at once."""
    state, at, users, running, refused = m.ZygoteState(), 0.0, 0, False, False
    for _ in range(30):
        at += draw([0.0, 1.0, 14.0, 250.0, 900.0])
        possible = ["needed", "tick"]
        possible += ["left"] if users else []
        possible += ["ready", "refused", "died", "silent"] if running else []
        kind = draw(possible)
        users += {"needed": 1, "left": -1}.get(kind, 0)
        was_running = running
        word = {"refused": m.WasRefused, "died": m.Died}
        plain = {
            "needed": m.Needed,
            "left": m.Left,
            "tick": m.Tick,
            "ready": m.BecameReady,
            "silent": m.Silent,
        }
        event = word[kind](at, kind) if kind in word else plain[kind](at)
        state, commands = m.step(state, event)
        running = running and kind != "died"
        for command in commands:
            if isinstance(command, m.Start):
                assert not running, "two processes at once"
                assert users > 0
                assert not refused
                running = True
            else:
                assert was_running, "nothing to end"
                running = False
        refused = refused or isinstance(state.phase, m.Refused)
        assert state.users == users
        assert running == isinstance(state.phase, m.Importing | m.Ready)
        assert isinstance(m.availability(state), m.Fresh) == (not running)
        wake = m.wake_at(state)
        if kind == "tick":
            assert wake is None or wake > at, "a tick that is due was not used"
        if isinstance(state.phase, m.Absent) and not refused and users:
            assert wake is not None, "its workers are fresh for ever"


RANDOM = [lambda m: by_random_lives(m, 60)]

MUTANTS = [
    ("every worker starts one", "if isinstance(state.phase, Absent) and at >= ", "if at >= "),
    ("no back-off", "and at >= state.phase.not_before and", "and"),
    ("linear waits", "float(FACTOR) ** min(failures - 1, 16)", "failures"),
    ("no longest wait", "LONGEST_S = 600.0", "LONGEST_S = 6000.0"),
    ("a refusal is tried again", "phase=Refused(why)", "phase=Absent(0.0, why)"),
    ("a refused one is not ended", "(Drop(why),)\n        case Died", "()\n        case Died"),
    (
        "a late refusal counts",
        "case WasRefused(_, why) if isinstance(state.phase, Importing):",
        "case WasRefused(_, why):",
    ),
    ("a healthy time forgives nothing", "1 if healthy else", "1 if False else"),
    ("every death is forgiven", "1 if healthy else", "1 if True else"),
    ("imports may hang", "case Importing(deadline) if at >= deadline:", "case Importing(deadline) if False:"),
    ("it never goes", "case Ready() if state.users == 0 and at", "case Ready() if False and at"),
    ("it goes below its workers", "case Ready() if state.users == 0 and at", "case Ready() if at"),
    ("nobody wakes the lingering one", "case Ready() if state.users == 0:", "case Ready() if False:"),
    (
        "nobody wakes the absent one",
        "case Absent(not_before) if state.users > 0:",
        "case Absent(not_before) if False:",
    ),
    (
        "started for nobody",
        " and state.users > 0:\n        return replace(state, phase=Importing",
        ":\n        return replace(state, phase=Importing",
    ),
    ("silence is borne", "case Silent(at) if isinstance(state.phase, Ready):", "case Silent(at) if False:"),
    ("users are not counted down", "users=state.users - 1", "users=state.users"),
    ("the order of imports counts", "tuple(sorted(set(preload)))", "preload"),
    ("the environment does not count", "tuple(sorted(env.items())), accelerated", "(), accelerated"),
    (
        "the kind does not count",
        "tuple(sorted(env.items())), accelerated, owner)",
        "tuple(sorted(env.items())), False, owner)",
    ),
    ("the owner does not count", "accelerated, owner)", "accelerated)"),
    ("any variable goes", 'BRINGS_CODE = ("PYTHON", "LD_")', 'BRINGS_CODE = ("PYTHONPATH", "LD_PRELOAD")'),
    ("characters are bytes", "len(name.encode()) > MARK_ROOM", "len(name) > MARK_ROOM"),
    ("hidden modules go", "set(names) & set(own)", "set()"),
    ("a prefix is a folder", '.rstrip("/") + "/"', ""),
    (
        "late deaths count",
        "case Died(at, why) if isinstance(state.phase, Importing | Ready):",
        "case Died(at, why):",
    ),
]
