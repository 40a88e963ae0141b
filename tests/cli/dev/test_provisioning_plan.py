"""Which live endpoints are created, updated or kept; and the local file of them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.dev.live_endpoints import cache
from stoker.cli.dev.live_endpoints.leaving import Staying, farewell
from stoker.cli.dev.live_endpoints.plan import (
    Action,
    Cached,
    Existing,
    Wanted,
    decide,
    question,
    stale,
)
from stoker.control.rules.limits import DEV_CONFIRMS_ABOVE

QUEUE, GPU = Wanted("h1"), Wanted("h1", compute="GPU")
THERE = Existing("e1", "t1", "QUEUE", "CPU")
KNOWN = Cached("e1", "t1", "h1")


@pytest.mark.parametrize(
    ("wanted", "cached", "existing", "verb", "reason"),
    [
        (QUEUE, None, None, "create", "it is new"),
        (QUEUE, KNOWN, None, "create", "e1 is gone"),
        (QUEUE, KNOWN, THERE, "keep", "its configuration is the same"),
        (Wanted("h2"), KNOWN, THERE, "update", "its configuration changed"),
        (QUEUE, None, THERE, "update", "the local file does not know it"),
        (QUEUE, Cached("e0", "t0", "h1"), THERE, "update", "the local file does not know it"),
        (Wanted("h2", "LOAD_BALANCER"), KNOWN, THERE, "replace", "it is LOAD_BALANCER now, and was QUEUE"),
        (GPU, KNOWN, THERE, "replace", "it needs a GPU now"),
        (
            Wanted("h1", workers_min=2),
            KNOWN,
            THERE,
            "update",
            "its minimum of workers was 0, and is 2 now",
        ),
    ],
)
def test_what_is_done(
    wanted: Wanted, cached: Cached | None, existing: Existing | None, verb: str, reason: str
) -> None:
    action = decide(wanted, cached, existing)
    assert (action.verb, action.reason) == (verb, reason)
    assert (action.existing is None) is (verb == "create")


def test_more_than_five_new_ones_are_asked_for() -> None:
    def actions(number: int) -> dict[str, Action]:
        return {f"live-{n}": Action("create", "it is new") for n in range(number)} | {
            "live-kept": Action("keep", "the same", THERE)
        }

    assert question(actions(DEV_CONFIRMS_ABOVE)) is None
    asked = question(actions(DEV_CONFIRMS_ABOVE + 1))
    assert asked is not None
    assert asked.startswith("6 endpoints would be created: live-0, live-1,")
    assert "live-kept" not in asked


def test_stale_ones_are_those_that_are_gone_or_have_another_id() -> None:
    cached = {"a": KNOWN, "b": KNOWN, "c": KNOWN}
    assert stale(cached, {"a": THERE, "b": Existing("e2", "t", "QUEUE", "CPU")}) == ["b", "c"]


def test_the_end_says_what_stays_and_what_it_costs() -> None:
    records = [
        {"name": "live-a", "idleTimeout": 60, "workers": [{"status": "IDLE", "costPerHr": 0.25}] * 2},
        {"name": "live-b", "idleTimeout": 5, "workers": [{"status": "RUNNING"}, {"status": "EXITED"}]},
        {"name": "live-c", "idleTimeout": 5, "workers": [{"status": "THROTTLED", "costPerHr": 9.0}]},
    ]
    *each, ending = farewell(map(Staying.of, records))
    assert each == [
        "live-a stays, with 2 workers for 0.5 USD an hour; an idle one ends after 60 s",
        "live-b stays, with 1 worker; an idle one ends after 5 s",
        "live-c stays, without workers",
    ]
    assert "stoker dev clean" in ending
    assert list(farewell([])) == []
    assert "with 1 worker for 10 USD" in str(Staying("live-a", 1, 10.0))


TEXTS = st.text(max_size=8)


@given(st.dictionaries(TEXTS, st.builds(Cached, TEXTS, TEXTS, TEXTS), max_size=4))
def test_the_file_is_read_as_it_was_written(endpoints: dict[str, Cached]) -> None:
    assert cache.parse(cache.as_text(endpoints)) == endpoints


@given(
    st.recursive(
        st.none() | st.integers() | TEXTS | st.sampled_from(["format", "endpoints", "id"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["format", "endpoints", "id", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_any_other_json_is_refused_or_read(content: object) -> None:
    with suppress(cache.CacheBroken):
        assert isinstance(cache.parse(json.dumps(content)), dict)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ('{"format": 2, "endpoints": {}}', "its format is 2, and this version reads 1"),
        ('{"format": 1}', "it has no endpoints"),
        ('{"format": 1, "endpoints": {"a": {"id": "x"}}}', "a has no id, template and hash"),
        ("\udce4", "codec can't decode"),
    ],
)
def test_a_broken_file_is_told_and_built_again(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / cache.NAME).write_bytes(text.encode(errors="surrogateescape"))
    endpoints, told = cache.read(tmp_path)
    assert endpoints == {}
    assert told is not None
    assert "cannot be used and is built again" in told
    assert why in told
    cache.write(tmp_path, {"live-a": KNOWN})
    assert cache.read(tmp_path) == ({"live-a": KNOWN}, None)
    assert (tmp_path / cache.NAME).stat().st_mode & 0o777 == 0o600


def test_there_may_be_no_file_yet(tmp_path: Path) -> None:
    assert cache.read(tmp_path / "nothing") == ({}, None)
    cache.write(tmp_path / "new", {})
    assert (tmp_path / "new" / cache.NAME).is_file()
