"""The endpoints of the file against those that are stored: each is stored once, and nobody else's goes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.config.settings import PlaneSettings
from stoker.control.resources.declared.decision import Decision, decide
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.wire.messages import LockedWeights, Price
from tests.profiles import examples

IDS = ("a", "b", "c", "d")
OLD, NEW = LockedWeights("w", "here", "1", ()), LockedWeights("w", "here", "2", ())
UNLOCKED = PlaneSettings()
LOCKED = PlaneSettings(weights={"w": (NEW,)})


def made(name: str, **fields: object) -> Endpoint:
    given = {"account": "default", "name": name, "version": 1, "run": EndpointVersion("/h.py:handler")}
    return Endpoint(id=name, **{**given, **fields})  # type: ignore[arg-type]


@st.composite
def endpoints(draw: st.DrawFn, *, stored: bool) -> Endpoint:
    hosted, name = draw(st.booleans()), draw(st.sampled_from(IDS))
    run = EndpointVersion(
        draw(st.sampled_from(["/h.py:one", "/h.py:two"])),
        prices=draw(st.sampled_from([(), (Price("device_ms", 7),)])),
        weights=draw(st.sampled_from([(), (OLD,), (NEW,)])),
    )
    declared = made(name, run=run, hosted=hosted, workers_max=draw(st.integers(0, 3)))
    if not stored:
        return declared
    asked = draw(st.dictionaries(st.sampled_from(["workersMax", "idleTimeout"]), st.integers(1, 5)))
    origin = draw(st.sampled_from(["file", "api"]))
    numbers = {"version": draw(st.integers(1, 9)), "created_at": 5.0, "origin": origin}
    return replace(declared, **numbers, requested=asked, hosted=hosted and origin == "file")  # type: ignore[arg-type]


def several(*, stored: bool) -> st.SearchStrategy[list[Endpoint]]:
    return st.lists(endpoints(stored=stored), max_size=4, unique_by=lambda one: one.id)


all_settings = st.builds(
    PlaneSettings,
    weights=st.sampled_from([{}, {"w": (NEW,)}]),
    set_by_file=st.dictionaries(st.sampled_from(IDS), st.just(frozenset({"workersMax"}))),
)


def after(stored: Sequence[Endpoint], decision: Decision) -> list[Endpoint]:
    """What the store has then; it assigns versions itself."""
    there = {one.id: one for one in stored if one.id not in decision.deleted}
    for one in decision.stored:
        old = there.get(one.id, one)
        there[one.id] = replace(one, version=old.version + (old.run != one.run), created_at=5.0)
    return list(there.values())


@settings(max_examples=examples(300))
@given(several(stored=False), several(stored=True), all_settings)
def test_afterwards_the_files_are_as_declared_and_the_others_as_they_were(
    declared: list[Endpoint], stored: list[Endpoint], by: PlaneSettings
) -> None:
    decision = decide(declared, stored, by)
    found, before = {one.id: one for one in after(stored, decision)}, {one.id: one for one in stored}
    ids = {one.id for one in declared}
    assert found.keys() == ids | {one.id for one in stored if one.origin == "api"}
    for one in declared:
        assert (found[one.id].run, found[one.id].origin) == (one.run, "file")
        if not one.hosted:
            assert found[one.id].workers_max == one.workers_max
    for name in found.keys() - ids:
        assert replace(found[name], run=before[name].run, version=before[name].version) == before[name]


@settings(max_examples=examples(300))
@given(several(stored=False), several(stored=True), all_settings)
def test_what_is_stored_already_is_left_alone(
    declared: list[Endpoint], stored: list[Endpoint], by: PlaneSettings
) -> None:
    decision = decide(declared, stored, by)
    assert decide(declared, after(stored, decision), by) == Decision()
    named = [one.id for one in decision.stored] + list(decision.deleted)
    assert len(named) == len(set(named))


def test_each_change_is_named() -> None:
    stored = [made("a", workers_max=3), made("b"), made("gone"), made("theirs", origin="api")]
    decision = decide([made("new"), made("a", workers_max=4), made("b")], stored, UNLOCKED)
    assert str(decision) == "new (new), a (changed), gone (deleted)"
    assert str(Decision()) == ""


def test_callers_workers_of_a_hosted_endpoint_stay_but_for_what_the_file_sets() -> None:
    stored = made("h", hosted=True, workers_max=5, idle_timeout_s=9, requested={"workersMax": 5})
    declared = made("h", hosted=True, workers_max=1, idle_timeout_s=9)
    assert decide([declared], [stored], UNLOCKED) == Decision()
    by_file = PlaneSettings(set_by_file={"h": frozenset({"workersMax"})})
    [changed] = decide([declared], [stored], by_file).changed
    assert (changed.workers_max, changed.requested) == (1, {})


def test_an_endpoint_of_callers_gets_the_weights_as_they_are_locked_now() -> None:
    stored = made("theirs", origin="api", run=EndpointVersion("/h.py:handler", weights=(OLD,)))
    [relocked] = decide([], [stored], LOCKED).relocked
    assert relocked == replace(stored, run=replace(stored.run, weights=(NEW,)))
    assert decide([], [relocked], LOCKED) == Decision()


def test_the_file_takes_an_endpoint_over_that_a_caller_made_under_its_id() -> None:
    [changed] = decide([made("a")], [made("a", origin="api", requested={"name": "a"})], UNLOCKED).changed
    assert (changed.origin, changed.requested) == ("file", {})
