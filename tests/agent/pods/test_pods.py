"""Pods of an agent whose engine is the fake one: what real engines must do too, and what only it can play."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.pods.events import Mark
from stoker.agent.pods.marks import MarksFile
from stoker.testing.fake_pods import FakePodEngine
from stoker.wire.messages import HeldPod, PodSpec, PodState
from tests.agent.pods.pod_stories import STORIES, PodNode, Programs, run_story

PROGRAMS = Programs(
    image="an/image",
    absent="no/image",
    runs=("runs",),
    stubborn=("stubborn",),
    ends=("ends", "7", "no model", "abc-secret hunter2"),
    needs_memory=("needs", "memory"),
)


def pod_node(engine: FakePodEngine) -> PodNode:
    async def is_up(_: PodState) -> None:
        """At once."""

    return PodNode(engine, PROGRAMS, 2.0, lambda: engine.volumes, lambda: set(engine.containers), is_up)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story: Any, in_time: Any) -> None:
    async def whole() -> None:
        await run_story(story, pod_node(FakePodEngine({"an/image"})))

    in_time(whole())


def test_its_engine_goes_and_comes(in_time: Any) -> None:
    async def story(node: PodNode) -> None:
        engine: Any = node.engine
        node.wish()
        await node.up()
        engine.stop()
        failed = await node.reported("failed")
        assert failed.reason == "the container engine cannot be reached"
        engine.start_again()
        await node.reported("running", since=2)

    in_time(run_story(story, pod_node(FakePodEngine())))


def test_a_disk_that_is_full_fails_the_pod_and_not_its_agent(in_time: Any) -> None:
    async def story(node: PodNode) -> None:
        engine: Any = node.engine
        pull = engine.pull

        async def on_a_full_disk(_: PodSpec) -> None:
            engine.pull = pull
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        engine.pull = on_a_full_disk
        node.wish()
        failed = await node.reported("failed")
        assert failed.reason == "the agent failed with it: OSError(28, 'No space left on device')"
        await node.reported("running", since=2)

    in_time(run_story(story, pod_node(FakePodEngine())))


def test_marks_are_on_the_disk_under_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(stat.S_ISDIR(os.fstat(fd).st_mode)))
    marks = MarksFile(tmp_path / "pods.json")
    marks.save({"p1": Mark(1, 0, "runs")})
    assert synced == [False, True], "the file, and then its folder"
    assert marks.load() == {"p1": Mark(1, 0, "runs")}


def test_it_is_metered_while_it_runs(in_time: Any) -> None:
    async def story(node: PodNode) -> None:
        engine: Any = node.engine
        node.wish()
        await node.up()
        engine.end("p1", 3)
        await node.reported("exited")
        assert [span.state for span in node.spans] == ["running"]
        node.wish(restarts=1)
        await node.up(restarts=1)
        node.wish(wish="EXITED")
        await node.reported("exited", restarts=1)
        assert [span.n for span in node.spans] == [1, 2]

    in_time(run_story(story, pod_node(FakePodEngine())))


def test_a_node_without_an_engine_reports_it(in_time: Any) -> None:
    async def story(node: PodNode) -> None:
        node.wish()
        failed = await node.reported("failed")
        assert failed.reason == "a pod needs a container engine; this node has none: no socket"
        assert node.pods.held()[0].state == "failed"
        node.wish(wish="TERMINATED")
        await node.reported("gone")

    in_time(run_story(story, pod_node(FakePodEngine(why="no socket"))))


def test_an_agent_reports_its_pods_and_leaves_them_when_it_ends(play: Any) -> None:
    async def story(host: Any) -> None:
        control = host.control
        await control.until(lambda: control.stream is not None)
        control.pods = (PodSpec("p1", 1, "RUNNING", "an/image", devices=("CPU-0",)),)
        await control.desire()
        await control.until(lambda: reports(host) == ["creating", "running"])
        control.stream.end("cut")
        await control.until(lambda: len(control.hellos) == 2)
        assert control.hellos[1].pods == (HeldPod("p1", 1, 0, "running"),)
        hosts.append(host)

    hosts: list[Any] = []
    play(story)
    assert "Runs" in repr(hosts[0].pods.containers["p1"].state), "the agent has ended, and it runs"
    assert hosts[0].pod_marks.kept == {"p1": Mark(1, 0, "runs")}


def reports(host: Any) -> list[str]:
    return [state.state for state in host.control.bodies(PodState)]
