"""Usage and bills in the store: everything once, in its hour, and every way to cut a bill adds up to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control import store
from stoker.control.rules.billing import HOUR_MS, PriceList, records
from stoker.control.rules.needs import Needs
from stoker.control.rules.pods import Pod, PodBody
from stoker.control.rules.types import EndpointVersion
from stoker.control.rules.volumes import Volume
from stoker.control.store.resources.volumes import add_volume, delete_volume, put_volume
from stoker.wire.messages import Device, Price, Report, ReportBody, Span, Usage
from tests.profiles import examples

HOUR = 490_000
NOW = HOUR * 3600.0 + 1_800.0
NOW_MS = int(NOW * 1000)
PRICES = PriceList(
    device_second=1_000, gpu_second={"H200": 5_000}, cpu_second=10, disk_gb_hour=7_200, volume_gb_hour=3_600
)
DEVICES = (Device("g0", "gpu", "H200"), Device("g1", "gpu", "L4"), Device("c0", "cpu", "a processor"))
ALWAYS = (0, 1 << 40)


def join(bench: Any, node: str = "n1", devices: tuple[Device, ...] = DEVICES) -> None:
    opened = bench.do(
        lambda conn: store.open_session(
            conn,
            node=node,
            boot="boot-1",
            name=node,
            devices=devices,
            facts={"data_center": "EU-RO-1"},
            now=NOW,
            lease_s=60.0,
        )
    )
    bench.sessions[node] = opened


def report(bench: Any, *bodies: ReportBody, now: float = NOW, node: str = "n1") -> None:
    reports = [Report(number, body) for number, body in enumerate(bodies, 1)]
    bench.do(
        lambda conn: store.apply_reports(
            conn, node=node, session=bench.sessions[node], reports=reports, now=now, prices=PRICES
        )
    )


def span(n: int = 1, began: int = 0, ended: int = 2_000, **fields: Any) -> Usage:
    """Milliseconds from NOW."""
    made = Usage("w1", "b1", n, "worker", "running", NOW_MS + began, NOW_MS + ended, "echo", 1, ("g0",))
    return replace(made, **fields)


def read(bench: Any, kind: str = "endpoint", **fields: Any) -> list[tuple[int, str, int, int, int]]:
    query = store.BillQuery("default", kind, fields.pop("hours", ALWAYS), **fields)
    rows = store.read_bills(bench.store.writer, query)
    found = records(rows, store.read_spaces(bench.store.writer, query), "hour")
    return sorted((r.hour - HOUR, r.name, r.billed_ms, r.disk_gb, r.nano_usd) for r in found)


def test_a_span_reported_twice_is_billed_once(bench: Any) -> None:
    join(bench)
    report(bench, span(), span())
    report(bench, span())
    report(bench, span(2, 2_000, 3_000), span(1, boot="b2"))
    assert read(bench, by="resource") == [(0, "echo", 5_000, 0, 25_000)]
    assert bench.rows("SELECT count(*), sum(billed_ms), sum(nano_usd) FROM usage") == [(3, 5_000, 25_000)]


@pytest.mark.parametrize("ends", list(permutations([2_000, 9_000, 1_800_500])), ids=str)
def test_of_a_span_that_is_reported_with_several_ends_the_longest_stands(bench: Any, ends: list[int]) -> None:
    """In any order: a copy of an agent's disk may have it as it was before it grew."""
    join(bench)
    for ended in ends:
        report(bench, span(ended=ended), span(ended=ended))
    report(bench, span(2, 1_800_500, 1_801_000))
    assert read(bench, by="worker") == [(0, "w1", 1_800_000, 0, 9_000_000), (1, "w1", 1_000, 0, 5_000)]
    reported = bench.rows("SELECT n, ended_ms, billed_ms, nano_usd FROM usage ORDER BY n")
    assert [tuple(row) for row in reported] == [
        (1, NOW_MS + 1_800_500, 1_800_500, 9_002_500),
        (2, NOW_MS + 1_801_000, 500, 2_500),
    ]


OTHERS: dict[str, Any] = {
    "began_ms": NOW_MS - 1_000,
    "state": "idle",
    "kind": "pod",
    "endpoint": "another",
    "devices": ("g0", "g1"),
}


@pytest.mark.parametrize("field", OTHERS)
def test_a_span_that_differs_in_more_than_its_end_changes_nothing(bench: Any, field: str) -> None:
    bench.put_endpoint("another")
    join(bench)
    if field == "kind":
        pod(bench)
    owner = {"owner": "p1", "endpoint": "p1"} if field == "kind" else {}
    bench.put_endpoint("p1")
    report(bench, span(**owner), replace(span(ended=9_000), **owner, **{field: OTHERS[field]}))
    assert bench.rows("SELECT ended_ms, billed_ms, nano_usd FROM usage") == [(NOW_MS + 2_000, 2_000, 10_000)]
    assert sum(row[4] for row in read(bench) + read(bench, "pod")) == 10_000


def test_a_span_that_grows_keeps_the_price_of_what_is_known(bench: Any) -> None:
    join(bench)
    report(bench, span())
    session, grown = bench.sessions["n1"], [Report(2, span(ended=3_000))]
    dear = PriceList(device_second=50_000)
    bench.do(
        lambda conn: store.apply_reports(
            conn, node="n1", session=session, reports=grown, now=NOW, prices=dear
        )
    )
    assert read(bench) == [(0, "", 3_000, 0, 10_000 + 50_000)]


def test_a_span_that_crosses_hours_is_split(bench: Any) -> None:
    join(bench)
    report(bench, span(began=0, ended=1_800_000 + HOUR_MS + 500))
    assert read(bench, by="worker") == [
        (0, "w1", 1_800_000, 0, 9_000_000),
        (1, "w1", HOUR_MS, 0, 18_000_000),
        (2, "w1", 500, 0, 2_500),
    ]


def test_each_device_type_has_its_price(bench: Any) -> None:
    join(bench)
    report(bench, span(1), span(2, devices=("g1",)), span(3, devices=("c0",)), span(4, devices=("none",)))
    assert read(bench, by="gpu_type") == [
        (0, "", 2_000, 0, 2_000),
        (0, "CPU", 2_000, 0, 20),
        (0, "H200", 2_000, 0, 10_000),
        (0, "L4", 2_000, 0, 2_000),
    ]
    report(bench, span(5, devices=("g1", "g1")))
    assert read(bench, by="gpu_type", gpu_types=("L4",)) == [(0, "L4", 4_000, 0, 6_000)]


def test_a_worker_on_a_part_of_a_gpu_pays_for_it(bench: Any) -> None:
    bench.put_endpoint("small", run=EndpointVersion("h.py:h", needs=Needs(share=0.25)))
    join(bench)
    report(bench, span(endpoint="small"))
    assert read(bench, by="resource") == [(0, "small", 2_000, 0, 2_500)]


def test_a_hosted_endpoint_is_paid_for_by_its_output(bench: Any) -> None:
    bench.put_endpoint("hosted", hosted=True, run=EndpointVersion("h.py:h", prices=(Price("pixel", 20),)))
    join(bench, devices=DEVICES[::2])
    claimed = _claimed(bench, "hosted")
    spans = (Span("execution", "device_ms", 7, 70), Span("output", "pixel", 100, 2_000))
    done = bench.done(claimed, spans=spans)
    report(bench, span(endpoint="hosted"), done, done)
    report(bench, done)
    assert read(bench, by="worker") == [(0, "w1", 0, 0, 2_000)]
    assert read(bench, by="gpu_type") == [(0, "H200", 0, 0, 2_000)]
    assert bench.rows("SELECT billed_ms, nano_usd FROM usage") == [(0, 0)]
    assert read(bench, image="local:h.py:h", data_centers=("EU-RO-1",)) == [(0, "", 0, 0, 2_000)]


def _claimed(bench: Any, endpoint: str = "echo") -> Any:
    _, (claimed,) = bench.submit(NOW, bench.slot(endpoint=endpoint), endpoint=endpoint)
    return claimed


def test_what_a_job_took_is_in_no_bill(bench: Any) -> None:
    """Its worker's time is."""
    join(bench)
    report(bench, bench.done(_claimed(bench), spans=(Span("execution", "device_ms", 7, 70),)))
    assert read(bench) == []


def test_free_time_is_kept_but_not_billed(bench: Any) -> None:
    join(bench)
    reports = [Report(1, span(state="idle")), Report(2, span(2, state="starting"))]
    prices = PriceList(device_second=1_000, starting_percent=50, idle_percent=0)
    session = bench.sessions["n1"]
    bench.do(
        lambda conn: store.apply_reports(
            conn, node="n1", session=session, reports=reports, now=NOW, prices=prices
        )
    )
    assert bench.rows("SELECT state, billed_ms, nano_usd FROM usage ORDER BY n") == [
        ("idle", 0, 0),
        ("starting", 2_000, 1_000),
    ]
    assert read(bench) == [(0, "", 2_000, 0, 1_000)]


def test_what_nobody_owns_or_comes_a_week_late_is_dropped(bench: Any) -> None:
    join(bench)
    late = -int(store.USAGE_LIFE_S * 1000) - 5_000
    report(
        bench,
        span(endpoint="none"),
        span(kind="pod", owner="none"),
        span(2, late, late + 2_000),
        span(3, 5, 5),
        span(4, 5, 4),
        span(5, late, 0),
        span(6, -NOW_MS, 0),
        span(7, 86_400_000, 86_405_000),
    )
    assert bench.rows("SELECT * FROM usage") == []
    assert read(bench) == []


def test_old_spans_go_and_cannot_come_back(bench: Any) -> None:
    join(bench)
    report(bench, span(1), span(2, 2_000, 3_000))
    later = NOW + store.USAGE_LIFE_S + 4_000
    assert bench.do(lambda conn: store.forget_usage(conn, later - 1_000, 10)) == 0
    assert bench.do(lambda conn: store.forget_usage(conn, later, 1)) == 1
    assert bench.do(lambda conn: store.forget_usage(conn, later, 10)) == 1
    report(bench, span(1), now=later)
    assert bench.rows("SELECT * FROM usage") == []
    assert read(bench) == [(0, "", 3_000, 0, 15_000)]


# ---- pods and volumes -----------------------------------------------------------------------------


def pod(bench: Any, **fields: Any) -> Pod:
    values = {"gpu_type": "H200", "created_at": NOW, "changed_at": NOW} | fields
    made = Pod("p1", "default", "p1", PodBody("image:1", disk_gb=50, volume_gb=20), **values)
    bench.do(lambda conn: store.add_pod(conn, made))
    return made


def test_a_pod_pays_for_its_time_and_for_its_disks(bench: Any) -> None:
    join(bench)
    pod(bench)
    report(bench, span(kind="pod", owner="p1", endpoint="", devices=("g0", "g0")))
    bench.do(lambda conn: store.bill_pods(conn, PRICES, NOW + 2_700.0))
    assert read(bench, "pod", by="resource") == [
        (0, "p1", 2_000, 70, 20_000 + 252_000),
        (1, "p1", 0, 70, 126_000),
    ]
    assert read(bench, "pod", by="gpu_type", gpu_types=("H200",), resource="p1")[1:] == [
        (1, "H200", 0, 70, 126_000)
    ]


def test_disks_are_billed_once_and_up_to_their_end(bench: Any) -> None:
    made = pod(bench)
    for at in (NOW + 10.0, NOW + 10.0, NOW + 9.0, NOW + 25.5):
        bench.do(lambda conn, at=at: store.bill_pods(conn, PRICES, at))
    assert read(bench, "pod") == [(0, "", 0, 70, 7_200 * 70 * 25_500 // HOUR_MS)]
    bench.do(lambda conn: store.put_pod(conn, replace(made, wish="TERMINATED", ended_at=NOW + 36.0)))
    for at in (NOW + 50_000.0, NOW + 60_000.0):
        bench.do(lambda conn, at=at: store.bill_pods(conn, PRICES, at))
    assert read(bench, "pod") == [(0, "", 0, 70, 5_040)]


def test_a_volume_is_billed_by_its_size_while_it_is(bench: Any) -> None:
    made = Volume("v1", "default", "data", "EU-RO-1", 100, NOW)
    bench.do(lambda conn: add_volume(conn, made))

    def grow(conn: Any) -> None:
        store.bill_volumes(conn, PRICES, NOW + 600.0, "v1")
        put_volume(conn, replace(made, size_gb=200))

    bench.do(grow)
    bench.do(lambda conn: store.bill_volumes(conn, PRICES, NOW + 1_200.0))
    assert read(bench, "volume") == [(0, "", 0, 200, 60_000 + 120_000)]
    bench.do(lambda conn: delete_volume(conn, "v1", NOW + 1_500.0))
    bench.do(lambda conn: store.bill_volumes(conn, PRICES, NOW + 9_000.0))
    assert read(bench, "volume", by="resource") == [(0, "v1", 0, 200, 240_000)]


def test_what_is_reported_of_space_is_the_most_that_there_was_at_once(bench: Any) -> None:
    def volume(name: str, size: int, began: float, ended: float | None = None) -> None:
        bench.do(lambda conn: add_volume(conn, Volume(name, "default", name, "EU-RO-1", size, began)))
        if ended is not None:
            bench.do(lambda conn: delete_volume(conn, name, ended))

    volume("v1", 30, NOW, NOW + 600.0)
    volume("v2", 100, NOW + 600.0)
    volume("v3", 20, NOW + 700.0, NOW + 800.0)
    for at in (NOW + 60.0, NOW + 120.0, NOW + 900.0):
        bench.do(lambda conn, at=at: store.bill_volumes(conn, PRICES, at))
    assert [row[3] for row in read(bench, "volume")] == [120]
    assert {row[1]: row[3] for row in read(bench, "volume", by="resource")} == {"v1": 30, "v2": 100, "v3": 20}
    assert [tuple(row) for row in bench.rows("SELECT count(*) FROM spaces")] == [(3,)], (
        "one row for each size"
    )


def test_a_pod_that_grows_is_not_counted_twice(bench: Any) -> None:
    made = pod(bench)
    bench.do(lambda conn: store.bill_pods(conn, PRICES, NOW + 60.0))
    bench.do(lambda conn: store.put_pod(conn, replace(made, body=replace(made.body, disk_gb=60))))
    bench.do(lambda conn: store.bill_pods(conn, PRICES, NOW + 120.0))
    assert [row[3] for row in read(bench, "pod", by="gpu_type", gpu_types=("H200",))] == [80]
    assert [tuple(row) for row in bench.rows("SELECT gb FROM spaces ORDER BY began")] == [(70,), (80,)]
    early = store.BillQuery("default", "pod", (0, HOUR), gpu_types=("L4",), resource="p1")
    assert store.read_spaces(bench.store.writer, early) == []


def test_an_outage_of_days_is_made_up_for(bench: Any) -> None:
    pod(bench)
    bench.do(lambda conn: store.bill_pods(conn, PRICES, NOW + 3 * 86_400.0))
    rows = read(bench, "pod")
    assert len(rows) == 73
    assert sum(row[4] for row in rows) == 7_200 * 70 * 72


def test_a_bill_is_its_accounts(bench: Any) -> None:
    join(bench)
    report(bench, span())
    others = store.BillQuery("another", "endpoint", ALWAYS)
    assert store.read_bills(bench.store.writer, others) == []
    assert read(bench, hours=(HOUR + 1, HOUR + 2)) == []
    assert read(bench, hours=(HOUR, HOUR + 1)) != []
    query = store.BillQuery("default", "endpoint", ALWAYS, by="worker")
    (day,) = store.read_bills(bench.store.writer, query, days=True)
    assert (day.hour, day.name) == (HOUR // 24 * 24, "w1")
    assert read(bench, template="t") == read(bench, image="x") == read(bench, data_centers=()) == []


# ---- it adds up -------------------------------------------------------------------------------------


def stretches() -> st.SearchStrategy[list[tuple[str, str, str, int, bool]]]:
    one = st.tuples(
        st.sampled_from(["w1", "w2", "w3"]),
        st.sampled_from(["starting", "running", "idle"]),
        st.sampled_from(["g0", "g1", "c0"]),
        st.sampled_from([1, 333, 60_000, 3_000_000, 6 * 86_400_000]),
        st.booleans(),
    )
    return st.lists(one, min_size=1, max_size=15)


BY = {"resource", "worker", "gpu_type", ""}


@pytest.mark.parametrize("database", ["sqlite"])
@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_every_cut_of_a_bill_adds_up_to_its_spans(new_bench: Callable[[], Any], data: st.DataObject) -> None:
    bench = new_bench()
    try:
        _history(bench, data.draw(stretches()))
        (time, money), *_ = bench.rows("SELECT sum(billed_ms), sum(nano_usd) FROM usage")
        (outputs,), *_ = bench.rows("SELECT coalesce(sum(nano_usd), 0) FROM spans WHERE unit != 'device_ms'")
        for by in BY:
            query = store.BillQuery("default", "endpoint", ALWAYS, by=by)
            rows = store.read_bills(bench.store.writer, query)
            for size in ("hour", "day", "week", "month", "year"):
                made = records(rows, [], size)  # type: ignore[arg-type]
                assert sum(one.billed_ms for one in made) == time
                assert sum(one.nano_usd for one in made) == money + outputs
                if size != "hour":
                    by_day = store.read_bills(bench.store.writer, query, days=True)
                    assert records(by_day, [], size) == made  # type: ignore[arg-type]
    finally:
        bench.store.close()


def _history(bench: Any, drawn: list[tuple[str, str, str, int, bool]]) -> None:
    """Some spans are told again, some come with a job whose output has a price."""
    bench.put_endpoint("hosted", hosted=True)
    join(bench)
    ends, numbers = Counter[str](), Counter[str]()
    for worker, state, device, length, again in drawn:
        numbers[worker] += 1
        one = span(numbers[worker], ends[worker], ends[worker] + length, owner=worker, state=state)
        ends[worker] += length
        bodies: list[ReportBody] = [replace(one, devices=(device,))] * (1 + again)
        if length < 1_000:
            made = (Span("execution", "device_ms", 7, 70), Span("output", "pixel", length, 20 * length))
            bodies += [bench.done(_claimed(bench, "hosted"), spans=made)] * 2
        report(bench, *bodies, now=NOW + ends[worker] / 1000)
