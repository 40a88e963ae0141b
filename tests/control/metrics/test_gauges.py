"""Gauges of any snapshot can be parsed, and add up to what there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stoker.control.metrics.gauges import Gauges, Snapshot, cause_of, state_of
from stoker.control.metrics.scrape import node_certificates
from stoker.control.rules.types import QueueSample
from stoker.control.scheduling.cluster_state import NodeState
from stoker.control.scheduling.placed import PlacedWorker
from stoker.wire.messages import AttemptKey, Device, DeviceSample

Samples = dict[tuple[str, ...], float]

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
QUEUES = st.dictionaries(
    NAMES,
    st.tuples(*[st.integers(0, 9)] * 4, st.none() | st.floats(0.0, 2e9)).map(
        lambda found: QueueSample("", found[0] + found[1], *found[2:], urgent=found[1])
    ),
    max_size=3,
)
CAUSES = {
    "starting": {"", "node_prepares"},
    "idle": {"", "retiring"},
    "busy": {"", "retiring"},
    "unhealthy": {"does_not_start", "became_unhealthy"},
    "stopping": {""},
}
SECRET = "hf_swordfish"
WORKERS = st.lists(
    st.builds(
        PlacedWorker,
        st.uuids().map(str),
        NAMES,
        st.just(1),
        st.just("node"),
        st.just(1),
        st.sampled_from(["starting", "ready", "unhealthy", "stopping"]),
        reason=st.just(SECRET),
        log_tail=st.just((SECRET,)),
        busy=st.sampled_from([{}, {AttemptKey("j", 1): 0.0}]),
        retiring=st.booleans(),
        was_ready=st.booleans(),
        waits_for=st.sampled_from(["", f"fetches {SECRET}"]),
    ),
    max_size=6,
).map(tuple)
SAMPLES = st.builds(
    DeviceSample,
    st.just("GPU-1"),
    memory_used=st.none() | st.integers(0, 1 << 40),
    utilisation=st.none() | st.integers(0, 100),
    temperature=st.none() | st.integers(0, 120),
    ill=st.sampled_from(["", "it burns"]),
)


def parsed(snapshot: Snapshot) -> dict[str, Samples]:
    """The values of each gauge, by its labels in the order of their names."""
    registry = CollectorRegistry()
    registry.register(Gauges(snapshot))
    text = generate_latest(registry).decode()
    assert SECRET not in text
    families = text_string_to_metric_families(text)
    return {
        family.name: {
            tuple(value for _, value in sorted(one.labels.items())): one.value for one in family.samples
        }
        for family in families
    }


@given(QUEUES, WORKERS, SAMPLES, NAMES)
def test_of_any_snapshot(
    queues: dict[str, QueueSample], workers: tuple[PlacedWorker, ...], sample: DeviceSample, name: str
) -> None:
    node = NodeState(name, 1, (Device("GPU-1", "gpu", "H100"), Device("cpu", "cpu", "CPU")))
    node.note([sample])
    endpoints = [*queues, "idle one"]
    found = parsed(Snapshot(1e9, endpoints, queues, workers, (node,), 1, 0.01, 0.02))
    waiting = found["stoker_jobs_waiting"]
    assert sum(waiting.values()) == sum(queue.queued + queue.low for queue in queues.values())
    for endpoint, queue in queues.items():
        classes = [waiting[endpoint, one] for one in ("urgent", "normal", "low")]
        assert classes == [queue.urgent, queue.queued - queue.urgent, queue.low]
    assert len(waiting) == 3 * len(set(endpoints)), "an endpoint without jobs is zero, not missing"
    assert all(age >= 0 for age in found["stoker_queue_age_seconds"].values())
    assert sum(found.get("stoker_workers", {}).values()) == len(workers)
    busy = sum(worker.state == "ready" and bool(worker.busy) for worker in workers)
    assert sum(n for (_, _, state), n in found.get("stoker_workers", {}).items() if state == "busy") == busy
    assert found["stoker_device_healthy"]["GPU-1", "H100", name] == (0 if sample.ill else 1)
    assert found["stoker_database_read_seconds"] == {(): 0.01}
    assert found["stoker_database_write_seconds"] == {(): 0.02}
    used = found.get("stoker_device_memory_used_bytes", {})
    assert used == ({} if sample.memory_used is None else {("GPU-1", "H100", name): sample.memory_used})


@given(WORKERS)
def test_a_cause_is_one_of_few_words(workers: tuple[PlacedWorker, ...]) -> None:
    for worker in workers:
        assert cause_of(worker) in CAUSES[state_of(worker)]
        assert (cause_of(worker) == "node_prepares") == (
            worker.state == "starting" and bool(worker.waits_for)
        )
        assert (cause_of(worker) == "became_unhealthy") == worker.ill


def test_a_node_that_takes_nothing_new() -> None:
    nodes = NodeState("a", 1, ()), NodeState("b", 1, (), drained=True)
    found = parsed(Snapshot(0.0, (), {}, (), nodes, 2, 0.0, 0.0))
    assert found["stoker_node_takes_workers"] == {("a",): 1, ("b",): 0}
    assert found["stoker_sessions"] == {(): 2}


def test_how_long_certificates_are_good() -> None:
    """A fact that is not a time is a node's own fault, and no end of the scrape."""
    facts = [{"certificate_ends": "1970-01-01T00:01:40Z"}, {"certificate_ends": "soon"}, {}]
    nodes = [NodeState(name, 1, (), told) for name, told in zip("abc", facts, strict=True)]
    ends = {"control": 30.0, "authority": 50.0}
    found = parsed(Snapshot(40.0, (), {}, (), nodes, 3, 0.0, 0.0, ends, node_certificates(nodes)))
    assert found["stoker_node_certificate_seconds"] == {("a",): 60.0}
    assert found["stoker_certificate_seconds"] == {("control",): -10.0, ("authority",): 10.0}
