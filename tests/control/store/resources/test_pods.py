"""Pods in the store: a node reaches its own pods, of this version."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stoker.control import store
from stoker.control.rules.pods import ContainerReport, Pod, PodBody, WantedPod
from stoker.wire.messages import HeldPod, PodState, PortMapping, RegistryAuth

BODY = PodBody(
    "image:1",
    env={"A": "secret words"},
    entrypoint=("sh",),
    command=("-c", "true"),
    ports=("22/tcp",),
    disk_gb=5,
    volume_gb=None,
    gpu_types=("NVIDIA H200",),
    data_centers=("EU-RO-1",),
    cuda_versions=("12.8",),
    vcpus=2,
    asked={"cpuFlavorIds": ["cpu3c"], "interruptible": True},
)
POD = Pod(
    "p1", "default", "a pod", BODY, node="n1", devices=("GPU-0",), gpu_type="NVIDIA H200", created_at=5.0
)


def added(bench: Any, pod: Pod = POD) -> Pod:
    bench.do(lambda conn: store.add_pod(conn, pod))
    return pod


def read(bench: Any, pod: str = "p1", account: str = "default") -> Pod | None:
    return bench.do(lambda conn: store.get_pod(conn, account, pod))


def reported(
    bench: Any, state: str, node: str = "n1", version: int = 1, **more: object
) -> tuple[WantedPod, ...]:
    news = PodState("p1", version, 0, state, **more)  # type: ignore[arg-type]
    return bench.report(7.0, news, node=node).pods


def test_a_pod_comes_back_as_it_was(bench: Any) -> None:
    added(bench)
    assert read(bench) == POD
    seen = ContainerReport(1, 0, "exited", "because", 3, (PortMapping(22, 10341, "tcp"),))
    changed = replace(POD, wish="EXITED", version=2, restarts=3, seen=seen, started_at=6.5, change="Words")
    stored = bench.do(lambda conn: store.put_pod(conn, changed))
    assert stored == replace(changed, revision=1)
    assert read(bench) == stored


def test_another_account_has_none_of_it(bench: Any) -> None:
    added(bench)
    assert read(bench, account="other") is None
    assert bench.do(lambda conn: store.list_pods(conn, "other")) == ()


def test_what_was_requested_is_sealed(bench: Any) -> None:
    added(bench)
    row = bench.do(lambda conn: conn.run("SELECT body FROM pods", {}).fetchone())
    assert b"secret words" not in bytes(row[0])
    assert b"image:1" not in bytes(row[0])


def test_a_report_reaches_the_pod_of_its_node_and_version(bench: Any) -> None:
    bench.node("n2", 1.0)
    added(bench)
    assert reported(bench, "running", node="n2") == ()
    assert reported(bench, "running", version=2) == ()
    (running,) = reported(bench, "running", started_ms=6_000)
    assert running.pod == read(bench)
    assert (running.pod.seen.state, running.pod.started_at, running.pod.revision) == ("running", 6.0, 1)
    (again,) = reported(bench, "running", started_ms=6_000)
    assert again.pod == replace(running.pod, revision=2)


def test_a_deleted_pod_is_known_until_its_node_says_gone(bench: Any) -> None:
    added(bench)
    bench.do(lambda conn: store.put_pod(conn, replace(POD, wish="TERMINATED")))
    assert read(bench) is None
    assert [pod.id for pod in bench.do(lambda conn: store.list_pods(conn, "default"))] == ["p1"]
    (gone,) = reported(bench, "gone")
    assert gone.pod.forgotten
    assert bench.do(lambda conn: store.list_pods(conn, "default")) == ()
    assert reported(bench, "running") == ()
    (back,) = bench.do(lambda conn: store.reconcile_pods(conn, "n1", [HeldPod("p1", 1, 0, "running")]))
    assert (back.pod.wish, back.pod.forgotten) == ("TERMINATED", False)
    (gone,) = reported(bench, "gone")
    assert gone.pod.forgotten


def test_a_hello_reports_what_there_is(bench: Any) -> None:
    added(bench)
    added(bench, replace(POD, id="p2", created_at=6.0))
    added(bench, replace(POD, id="p3", node="n2", created_at=7.0))
    found = [HeldPod("p2", 1, 0, "exited"), HeldPod("stranger", 1, 0, "running")]
    after = bench.do(lambda conn: store.reconcile_pods(conn, "n1", found))
    assert [(one.pod.id, one.pod.seen.state) for one in after] == [("p1", ""), ("p2", "exited")]
    assert [read(bench, one.pod.id) for one in after] == [one.pod for one in after]


def test_the_login_of_its_registry_is_read_with_it(bench: Any) -> None:
    login = RegistryAuth("u", "p")
    registry = store.Registry("r1", "mine")
    bench.do(lambda conn: store.add_registry(conn, "default", registry, login, 1.0))
    pod = added(bench, replace(POD, body=replace(BODY, registry="r1")))
    assert bench.do(lambda conn: store.want(conn, pod)) == WantedPod(pod, login)
    assert bench.do(lambda conn: store.want(conn, POD)) == WantedPod(POD)
