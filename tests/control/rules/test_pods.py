"""The rules of a pod: examples for each, and whatever callers and a node may do in any order."""

from __future__ import annotations

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.rules.pods import (
    ENDED,
    Action,
    ActionRefused,
    ContainerReport,
    Pod,
    PodBody,
    PodStatus,
    act,
    after_hello,
    after_report,
    changed,
    placed,
    public_status,
)
from stoker.wire.messages import HeldPod, PodState, PortMapping
from tests.profiles import examples

POD = Pod("p", "default", "a pod", PodBody("image:1"), node="node-1", devices=("GPU-0",), created_at=1.0)
PORTS = (PortMapping(22, 10341, "tcp"),)
STATES = ("creating", "running", "exited", "failed", "gone")


def says(pod: Pod, state: str, at: float = 5.0, **more: object) -> Pod:
    """The pod after its node's answer to what is wanted now."""
    after = after_report(pod, PodState("p", pod.version, pod.restarts, state, **more), at)  # type: ignore[arg-type]
    assert after is not None
    return after


def does(pod: Pod, action: str, at: float = 6.0) -> Pod:
    after = act(pod, action, at)  # type: ignore[arg-type]
    assert not isinstance(after, ActionRefused), after
    return after


def reading(pod: Pod, *, connected: bool = True) -> tuple[str, str]:
    found = public_status(pod, connected=connected)
    return found.desired, found.status


def counts(pod: Pod) -> tuple[str, int, int]:
    return pod.wish, pod.version, pod.restarts


# ---- examples -----------------------------------------------------------------------------------


def test_each_action_by_each_state() -> None:
    stopped = does(POD, "stop")
    assert counts(stopped) == ("EXITED", 1, 0)
    assert act(stopped, "stop", 9.0) is stopped
    assert counts(does(stopped, "start")) == ("RUNNING", 1, 1)
    assert counts(does(stopped, "reset")) == ("EXITED", 2, 0)
    assert isinstance(act(stopped, "restart", 9.0), ActionRefused)
    for state in ("creating", "running"):
        running = says(POD, state)
        assert act(running, "start", 9.0) is running
    assert act(POD, "start", 9.0) is POD
    for state in ENDED:
        assert counts(does(says(POD, state), "start")) == ("RUNNING", 1, 1)
    assert counts(does(POD, "restart")) == ("RUNNING", 1, 1)
    assert counts(does(POD, "reset")) == ("RUNNING", 2, 0)
    deleted = does(POD, "delete", 7.0)
    assert (counts(deleted), deleted.ended_at) == (("TERMINATED", 1, 0), 7.0)


def test_whatever_happened_is_reported_with_its_time() -> None:
    assert (does(POD, "stop", 9.0).change, does(POD, "stop", 9.0).changed_at) == ("Exited by User", 9.0)
    ended = says(says(POD, "running", 3.0), "exited", 4.0)
    assert (ended.change, ended.changed_at) == ("Exited by itself", 4.0)
    assert says(ended, "exited", 8.0).changed_at == 4.0
    assert says(does(POD, "stop", 5.0), "exited", 6.0).change == "Exited by User"


def test_when_it_started_is_kept_from_the_first_word_of_it() -> None:
    assert says(POD, "creating").started_at is None
    running = says(POD, "running", 3.0)
    assert running.started_at == 3.0
    assert says(running, "running", 9.0).started_at == 3.0
    assert says(POD, "running", 3.0, started_ms=2500).started_at == 2.5
    assert says(does(running, "restart"), "running", 7.0).started_at == 7.0


def test_a_locked_pod_can_only_be_started() -> None:
    locked = replace(does(POD, "stop"), body=replace(POD.body, locked=True))
    for action in get_args(Action):
        assert isinstance(act(locked, action, 9.0), ActionRefused) == (action != "start")


def test_a_change_makes_the_container_anew_unless_it_is_name_or_lock() -> None:
    renamed = changed(POD, replace(POD.body, locked=True), "other", 9.0)
    assert isinstance(renamed, Pod)
    assert (renamed.version, renamed.name, renamed.body.locked) == (1, "other", True)
    assert changed(POD, POD.body, POD.name, 9.0) == POD
    new = changed(POD, replace(POD.body, image="image:2"), POD.name, 9.0)
    assert isinstance(new, Pod)
    assert (new.version, new.restarts, new.body.image, new.changed_at) == (2, 0, "image:2", 9.0)
    locked = replace(POD, body=replace(POD.body, locked=True))
    assert isinstance(changed(locked, replace(locked.body, image="image:2"), "p", 9.0), ActionRefused)
    assert not isinstance(
        changed(locked, replace(locked.body, locked=False, image="i"), "p", 9.0), ActionRefused
    )
    assert not isinstance(changed(locked, locked.body, "other", 9.0), ActionRefused)
    assert not isinstance(changed(POD, replace(POD.body, locked=True, image="i"), "p", 9.0), ActionRefused)


def test_a_container_keeps_the_devices_that_it_was_made_with() -> None:
    assert placed(POD, "node-1", ("GPU-0",), "H200").version == 1
    assert placed(POD, "node-1", ("GPU-1",), "H200").version == 2
    new = placed(replace(POD, node="", devices=()), "node-1", ("GPU-1",), "H200")
    assert (new.node, new.devices, new.gpu_type, new.version) == ("node-1", ("GPU-1",), "H200", 1)


def test_devices_are_held_until_the_container_has_ended() -> None:
    assert POD.holds
    assert not replace(POD, node="").holds
    running = says(POD, "running")
    assert says(running, "exited").holds
    for action in ("stop", "delete"):
        going = does(running, action)
        assert going.holds
        assert not says(going, "exited").holds
        assert not does(POD, action).holds
    assert does(says(POD, "creating"), "stop").holds


def test_a_deleted_pod_is_forgotten_when_its_node_has_nothing_of_it() -> None:
    deleted = does(says(POD, "running"), "delete")
    assert not deleted.forgotten
    assert not says(deleted, "exited").forgotten
    assert says(deleted, "gone").forgotten
    assert does(replace(POD, node=""), "delete").forgotten
    assert not says(POD, "gone").forgotten
    assert not does(says(POD, "gone"), "delete").forgotten


def test_what_it_reads() -> None:
    assert reading(POD) == ("RUNNING", "PROVISIONING")
    assert reading(says(POD, "creating")) == ("RUNNING", "STARTING")
    assert reading(says(POD, "running")) == ("RUNNING", "RUNNING")
    assert reading(says(POD, "exited")) == ("EXITED", "EXITED")
    assert reading(says(POD, "failed")) == ("EXITED", "ERROR")
    assert reading(says(POD, "gone")) == ("EXITED", "ERROR")
    running = says(POD, "running")
    assert reading(does(running, "restart")) == ("RUNNING", "STARTING")
    assert reading(does(running, "reset")) == ("RUNNING", "PROVISIONING")
    assert reading(does(running, "stop")) == ("EXITED", "RUNNING")
    assert reading(says(does(running, "stop"), "exited")) == ("EXITED", "EXITED")
    assert reading(does(running, "delete")) == ("TERMINATED", "TERMINATED")


def test_what_it_reads_while_its_node_is_away() -> None:
    running = says(POD, "running")
    assert reading(running, connected=False) == ("RUNNING", "ERROR")
    assert reading(says(POD, "exited"), connected=False) == ("EXITED", "ERROR")
    assert reading(does(running, "stop"), connected=False) == ("EXITED", "ERROR")
    assert reading(says(does(running, "stop"), "exited"), connected=False) == ("EXITED", "EXITED")
    assert reading(does(running, "delete"), connected=False) == ("TERMINATED", "TERMINATED")
    assert public_status(running, connected=False).reason.startswith("node node-1 is not connected")


def test_why_is_reported_in_the_nodes_text_or_in_ours() -> None:
    def why(pod: Pod) -> str:
        return public_status(pod, connected=True).reason

    assert why(says(POD, "exited", exit_code=3)) == "its container ended by itself with exit code 3"
    assert why(says(POD, "exited", exit_code=0)) == "its container ended by itself with exit code 0"
    assert why(says(POD, "exited")) == "its container ended by itself"
    assert why(says(POD, "exited", reason="out of memory")) == "out of memory"
    assert why(says(POD, "failed", reason="no such image")) == "no such image"
    assert why(says(POD, "creating", reason="pulling")) == "pulling"
    assert "has not reported it" in why(POD)
    assert why(says(POD, "running")) == ""
    assert why(does(says(POD, "running"), "stop")) == "it is being stopped"
    assert why(does(POD, "delete")) == "its container is being removed"
    assert why(says(does(POD, "delete"), "gone")) == ""


def test_what_a_hello_does_not_name_is_not_there() -> None:
    running = says(POD, "running", ports=PORTS)
    assert after_hello(running, HeldPod("p", 1, 0, "running")) == running
    assert after_hello(running, None).seen == ContainerReport()
    exited = after_hello(running, HeldPod("p", 1, 0, "exited"))
    assert (reading(exited), exited.seen.ports) == (("EXITED", "EXITED"), ())
    assert after_hello(running, HeldPod("p", 1, 1, "running")).seen == ContainerReport(1, 1, "running")


def test_ports_are_reported_only_while_it_runs() -> None:
    running = says(POD, "running", ports=PORTS)
    assert running.now_seen.ports == PORTS
    assert does(running, "restart").now_seen.ports == ()
    assert says(running, "exited", ports=PORTS).now_seen.ports == ()


# ---- in any order -------------------------------------------------------------------------------

_EVENTS = st.one_of(
    st.sampled_from(get_args(Action)),
    st.tuples(st.sampled_from(STATES), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.sampled_from(STATES)),
    st.booleans(),
    st.none(),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(_EVENTS, max_size=20))
def test_whatever_happens_the_reading_is_true(events: list[object]) -> None:
    """Actions, answers to any version, what a Hello holds or not: no count falls, no late word counts."""
    pod, now = POD, 10.0
    for event in events:
        now += 1
        before, pod = pod, _after(pod, event, now)
        assert (pod.version, pod.restarts) >= (before.version, before.restarts)
        assert pod.version >= before.version
        assert pod.restarts >= before.restarts
        if before.wish == "TERMINATED":
            assert pod.wish == "TERMINATED"
        _check(pod)


def _after(pod: Pod, event: object, now: float) -> Pod:
    match event:
        case str() as action:
            if pod.wish == "TERMINATED":
                return pod  # nobody finds it any more
            after = act(pod, action, now)  # type: ignore[arg-type]
            return pod if isinstance(after, ActionRefused) else after
        case (state, version, restarts):
            answer = PodState("p", version, restarts, str(state))  # type: ignore[arg-type]
            reported = after_report(pod, answer, now)
            current = (version, restarts) == (pod.version, pod.restarts)
            assert (reported is None) != current
            return pod if reported is None else reported
        case (state,):
            return says(pod, str(state), now)
        case True:
            return after_hello(pod, HeldPod("p", pod.version, pod.restarts, "running"))
        case False:
            body = replace(pod.body, image=f"image:{now}")
            after_change = changed(pod, body, "p", now)
            assert isinstance(after_change, Pod)
            return after_change
        case _:
            return after_hello(pod, None)


def _check(pod: Pod) -> None:
    for connected in (True, False):
        found = public_status(pod, connected=connected)
        assert isinstance(found, PodStatus)
        assert (found.desired == "TERMINATED") == (pod.wish == "TERMINATED")
        if pod.wish == "EXITED":
            assert found.desired == "EXITED"
        if found.status == "RUNNING":
            assert connected
            assert pod.seen.state in ("running", "creating")
        if found.status in ("ERROR", "PROVISIONING", "STARTING"):
            assert found.reason or pod.seen.state == "creating"
    if pod.wish == "RUNNING":
        assert pod.holds
