"""Which workers go, and how many come: single looks that a mutant would get wrong, and whole roll-outs."""

from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.scheduling.rollout import RolloutWorker, make_room, plan
from tests.profiles import examples


def old(name: str, jobs: int = 0, idle_for: float = 0.0, **more: object) -> RolloutWorker:
    return RolloutWorker(name, False, "ready", jobs=jobs, idle_for=idle_for, **more)  # type: ignore[arg-type]


def new(name: str, state: str = "ready", jobs: int = 0, **more: object) -> RolloutWorker:
    return RolloutWorker(name, True, state, jobs=jobs, **more)  # type: ignore[arg-type]


# ---- one look


def test_an_unhealthy_old_one_that_has_requests_still_is_not_stopped() -> None:
    """An http worker that misses a probe is out of rotation, and finishes what it has."""
    unhealthy = RolloutWorker("a", False, "unhealthy", jobs=1)
    assert plan([unhealthy, new("b")], 1, 9).stop == ()
    assert plan([replace(unhealthy, jobs=0), new("b")], 1, 9).stop == ("a",)


def test_where_all_are_new_only_the_surplus_goes_the_longest_idle_first() -> None:
    workers = [new("a", jobs=1), new("b", idle_for=3.0), new("c", idle_for=7.0)]
    assert plan(workers, 3, 9).stop == ()
    assert plan(workers, 2, 9).stop == ("c",)
    assert plan(workers, 1, 9).stop == ("c", "b")


def test_one_that_served_and_is_unhealthy_is_replaced_and_goes_when_another_serves() -> None:
    ill = new("a", "unhealthy", ill=True)
    assert (plan([ill], 1, 3).start, plan([ill], 1, 3).lacking, plan([ill], 1, 3).stop) == (1, 1, ())
    assert plan([ill, new("b", "starting")], 1, 3).start == 0
    assert plan([ill, new("b")], 1, 3).stop == ("a",)
    assert plan([replace(ill, jobs=1), new("b")], 1, 3).retire == ("a",)
    assert plan([ill], 1, 1).start == 0, "it keeps its place below the maximum"
    assert plan([new("a", "unhealthy")], 1, 3).start == 0, "one that never served: others would fail alike"


def test_above_what_is_wanted_busy_ones_retire_and_those_that_do_not_serve_go_first() -> None:
    workers = [new("a", jobs=2), new("b", jobs=1), new("c", idle_for=9.0), new("d", "starting")]
    assert plan(workers, 3, 9).stop == ("d",)
    assert plan(workers, 1, 9) == replace(plan(workers, 1, 9), stop=("d", "c"), retire=("b",))
    kept = [replace(workers[0], retiring=True), workers[1]]
    assert plan(kept, 1, 9).retire == ("a",)
    assert plan(kept, 2, 9).retire == ()


def test_an_old_one_goes_when_a_new_one_is_ready_and_not_before() -> None:
    workers = [old("a", jobs=1), old("b"), new("c", "starting")]
    assert plan(workers, 2, 9).stop == plan(workers, 2, 9).retire == ()
    assert plan([*workers[:2], new("c")], 2, 9).stop == ("b",)
    assert plan([workers[0], new("c"), new("d")], 2, 9).retire == ("a",)


def test_old_ones_that_do_not_serve_go_at_once() -> None:
    workers = [old("a"), replace(old("b"), state="starting"), replace(old("c"), state="unhealthy")]
    assert plan(workers, 3, 9).stop == ("b", "c")
    assert plan(workers, 3, 9).lacking == 2


def test_old_ones_that_nobody_wants_go_at_once() -> None:
    assert plan([old("a"), old("b", jobs=1)], 0, 9) == replace(plan([], 0, 9), stop=("a",), retire=("b",))


def test_a_share_is_replaced_at_a_time_and_demand_is_met_besides() -> None:
    many = [old(f"o{n}") for n in range(20)]
    assert plan(many, 20, 20).start == 2
    assert plan(many, 20, 21).start == 3
    assert plan(many, 20, 5).start == 1
    assert plan([*many, new("n", "starting")], 20, 20).start == 1
    assert (plan(many, 25, 30).start, plan(many, 25, 30).lacking) == (5, 5)
    assert plan([*many[:19], new("n")], 20, 20).start == 2
    busy = [replace(worker, jobs=1) for worker in many[:19]]
    assert plan([*busy, new("n"), new("m")], 20, 20) == replace(plan([], 0, 9), start=1, retire=("o0",))
    assert plan([*many[:18], replace(many[18], state="stopping"), new("n"), new("m")], 20, 20).start == 1


def test_no_more_is_started_than_is_wanted_of_the_new_version() -> None:
    assert plan([old("a"), new("b", "starting")], 1, 100).start == 0
    assert plan([old("a"), old("b"), new("c")], 2, 100).start == 1


def test_a_version_that_does_not_start_is_not_tried_more_and_says_why() -> None:
    broken = new("n", "unhealthy", reason="crash loop: no module named torch")
    assert plan([old("a"), broken], 9, 10) == replace(
        plan([], 0, 9), failing="crash loop: no module named torch"
    )
    assert plan([broken], 9, 10).start == 8
    assert plan([old("a"), broken, new("b")], 9, 10).failing == ""


def test_at_once_old_ones_go_before_new_ones_are_ready_and_the_maximum_is_kept() -> None:
    workers = [old("a"), old("b", jobs=1)]
    assert plan(workers, 2, 2, at_once=True) == replace(
        plan([], 0, 9), start=1, lacking=1, stop=("a",), retire=("b",)
    )
    assert plan([old("a"), new("n", "unhealthy")], 1, 1, at_once=True).failing == "", "none stays"
    ending = [replace(old("a"), state="stopping"), replace(old("b", jobs=1), retiring=True)]
    assert plan(ending, 2, 2, at_once=True).start == 1
    assert plan([*ending, new("n", "starting")], 2, 2, at_once=True).start == 0


def test_room_is_made_by_one_at_a_time_idle_ones_first() -> None:
    workers = [old("a", jobs=1), old("b", idle_for=1.0), old("c", idle_for=2.0), new("n")]
    assert [worker.name for worker in make_room(workers)] == ["c", "b", "a"]
    for coming in ("starting", "unhealthy", "stopping"):
        assert make_room([*workers, new("m", coming)]) == []
    assert make_room([*workers, replace(old("d"), state="stopping")]) == []
    assert make_room([new("n")]) == []


# ---- whole roll-outs


class Shop:
    """Workers that obey: so many places, jobs for those that are busy, and a new version that starts or does
    not. Each step is a look, and then what the agents do until the next."""

    def __init__(self, busy: list[bool], places: int, most: int, starts: bool) -> None:
        self.workers = {f"o{n}": old(f"o{n}", int(is_busy)) for n, is_busy in enumerate(busy)}
        self.wanted, self.places, self.most, self.starts = len(busy), places, most, starts
        self.made = 0

    def look(self) -> None:
        workers = list(self.workers.values())
        made = plan(workers, self.wanted, self.most)
        for name, worker in self.workers.items():
            self.workers[name] = replace(worker, retiring=name in made.retire)
        for name in made.stop:
            self.stop(name)
        for _ in range(made.start):
            if len(self.workers) >= self.places:
                self.make_room()
                break
            self.made += 1
            self.workers[f"n{self.made}"] = new(f"n{self.made}", "starting")

    def make_room(self) -> None:
        for worker in make_room(list(self.workers.values()))[:1]:
            if worker.jobs:
                self.workers[worker.name] = replace(worker, retiring=True)
            else:
                self.stop(worker.name)

    def stop(self, name: str) -> None:
        assert not self.workers[name].jobs, "a busy worker is never stopped"
        self.workers[name] = replace(self.workers[name], state="stopping")

    def time_passes(self) -> None:
        came = "ready" if self.starts else "unhealthy"
        for name, worker in list(self.workers.items()):
            if worker.state == "stopping":
                del self.workers[name]
            elif worker.state == "starting":
                self.workers[name] = replace(worker, state=came)
            elif worker.retiring:
                self.workers[name] = replace(worker, jobs=0)

    def serving(self) -> int:
        return sum(1 for worker in self.workers.values() if worker.state == "ready" and not worker.retiring)


@settings(max_examples=examples(200))
@given(st.lists(st.booleans(), min_size=1, max_size=25), st.integers(0, 8), st.integers(0, 20), st.booleans())
def test_a_roll_out(busy: list[bool], spare: int, above: int, starts: bool) -> None:
    most = len(busy) + above
    shop = Shop(busy, len(busy) + spare, most, starts)
    share = max(1, ceil(most / 10))
    for _ in range(6 * len(busy) + 6):
        shop.look()
        assert shop.serving() >= shop.wanted - (not spare)
        assert len(shop.workers) <= shop.wanted + share
        shop.time_passes()
    if starts:
        assert all(worker.new for worker in shop.workers.values())
        assert len(shop.workers) == shop.wanted
    else:
        assert sum(1 for worker in shop.workers.values() if worker.new) <= share
        assert shop.serving() >= shop.wanted - (not spare)
