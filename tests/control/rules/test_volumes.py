"""Which nodes a volume may be used on, and what may become of its size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.rules.needs import Needs
from stoker.control.rules.placement import NodeRoom, NoPlacement, place
from stoker.control.rules.volumes import GB, Volume, fitting, grown, unfit
from stoker.wire.messages import Device

VOLUME = Volume("v1", "default", "data", "EU-RO-1", 10, 0.0)
CPU = (Device("CPU-0", "cpu", "a processor"),)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "volumes": st.sampled_from(["yes: at /runpod-volume", "no: no volume root", ""]),
        "data_center": st.sampled_from(["EU-RO-1", "US-TX-1", ""]),
    },
)
VOLUMES = st.builds(
    replace,
    st.just(VOLUME),
    data_center=st.sampled_from(["", "EU-RO-1"]),
    used_bytes=st.sampled_from([None, 0, 10 * GB, 10 * GB + 1]),
)


def room(name: str = "n", closed: str = "", **facts: str) -> NodeRoom:
    return NodeRoom(name, CPU, {}, facts=facts, closed=closed)


def test_each_refusal_has_its_message() -> None:
    full = replace(VOLUME, used_bytes=12 * GB)
    assert unfit("v1", None, {"volumes": "no: no volume root"}) == (
        "has no place for volume v1 (start its agent with --volume-root)"
    )
    assert unfit("v1", VOLUME, {"data_center": "US-TX-1"}) == (
        "is in data center US-TX-1, and volume v1 in EU-RO-1"
    )
    assert unfit("v1", full, {}) == "is closed to volume v1, which holds 12.0 GB and has a size of 10 GB"
    assert unfit("weights", None, {"data_center": "US-TX-1"}) == ""


def test_at_its_size_and_beyond() -> None:
    assert unfit("v1", replace(VOLUME, used_bytes=10 * GB), {}) == ""
    assert unfit("v1", VOLUME, {"data_center": "EU-RO-1", "volumes": "yes: at /runpod-volume"}) == ""
    assert grown(VOLUME, 9) == "size may only grow: volume v1 has 10 GB; got 9"
    assert grown(VOLUME, 11) == replace(VOLUME, size_gb=11)


def test_rooms_are_closed_and_the_refusal_is_a_message() -> None:
    rooms = [room("a", volumes="no: no volume root"), room("b", data_center="US-TX-1"), room("c")]
    fit = fitting("v1", VOLUME, rooms)
    assert [bool(one.closed) for one in fit] == [True, True, False]
    refused = place(fit[:2], Needs())
    assert isinstance(refused, NoPlacement)
    assert refused.why.startswith("no capacity: ")
    assert "node a has no place for volume v1" in refused.why
    assert "node b is in data center US-TX-1" in refused.why


def test_without_a_volume_every_room_is_open_and_a_closed_one_stays_closed() -> None:
    rooms = [room("a", volumes="no: no volume root"), room("b", closed="is about to go")]
    assert fitting("", None, rooms) == rooms
    assert [one.closed for one in fitting("v1", VOLUME, rooms)][1] == "is about to go"


@given(st.none() | VOLUMES, FACTS)
def test_a_node_is_refused_for_what_it_reports_and_for_nothing_else(volume, facts) -> None:
    no_root = facts.get("volumes", "").startswith("no")
    elsewhere = volume and volume.data_center and facts.get("data_center", "") == "US-TX-1"
    over = volume and volume.used_bytes == 10 * GB + 1
    assert bool(unfit("v1", volume, facts)) == bool(no_root or elsewhere or over)


@given(VOLUMES, st.integers(0, 4000))
def test_a_volume_grows_and_never_shrinks(volume, size) -> None:
    after = grown(volume, size)
    if size < volume.size_gb:
        assert after == f"size may only grow: volume v1 has 10 GB; got {size}"
    else:
        assert after == replace(volume, size_gb=size)
