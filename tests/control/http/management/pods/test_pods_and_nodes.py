"""Pods over HTTP: what their nodes say of them is what they read."""

from __future__ import annotations

import asyncio
from typing import Any

from stoker.control.errors import Unavailable
from stoker.wire.messages import HeldPod, PortMapping
from tests.control.http.management.pods.pod_world import (
    CPU,
    FACTS,
    GPUS,
    IMAGE,
    does,
    get_pod,
    joined,
    once,
    refused,
    sent_spec,
    state,
)
from tests.control.plane_world import story


@story
async def test_a_container_that_ends_by_itself_reads_exited_and_why() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        spec = await sent_spec(agent, pod)
        await agent.report_pod(spec, "running")
        await agent.report_pod(spec, "exited", exit_code=3)
        await agent.listen(0.1)
        found = await get_pod(api, pod)
        assert state(found) == ("EXITED", "EXITED")
        assert (found["exitCode"], found["reason"]) == (3, "its container ended by itself with exit code 3")
        assert found["lastStatusChange"].startswith("Exited by itself: ")
        await does(api, pod, "start")
        spec = await sent_spec(agent, pod)
        assert (spec.wish, spec.version, spec.restarts) == ("RUNNING", 1, 1)
        found = await get_pod(api, pod)
        assert state(found) == ("RUNNING", "STARTING")
        assert "exitCode" not in found


@once
async def test_a_container_that_cannot_start_is_an_error_with_its_reason() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        await agent.report_pod(
            await sent_spec(agent, pod), "failed", reason="the image could not be pulled: no such tag"
        )
        await agent.listen(0.1)
        found = await get_pod(api, pod)
        assert state(found) == ("EXITED", "ERROR")
        assert found["reason"] == "the image could not be pulled: no such tag"


@story
async def test_news_that_comes_while_a_change_fails_holds() -> None:
    async with joined("node-1", devices=GPUS) as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE, gpuCount=2))["id"]
        await agent.report_pod(await sent_spec(agent, pod), "running")
        await agent.listen(0.1)
        await does(api, pod, "stop")
        spec = await sent_spec(agent, pod)
        commits, mine = api.world.commits, asyncio.current_task()

        async def full(fn: Any) -> Any:
            if asyncio.current_task() is mine and "Pods.act" in fn.__qualname__:
                await agent.report_pod(spec, "exited", exit_code=143)
                await agent.listen(0.1)
                raise Unavailable("the disk is full")
            return await type(commits).commit(commits, fn)

        commits.commit = full  # type: ignore[method-assign]
        assert "full" in await refused(api, f"/pods/{pod}/start", 503)
        del commits.commit  # type: ignore[method-assign]
        assert state(await get_pod(api, pod)) == ("EXITED", "EXITED")
        await api.made("/pods", imageName=IMAGE, gpuCount=2)  # its GPUs are free


@story
async def test_late_news_of_an_older_version_or_start_is_ignored() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        old = await sent_spec(agent, pod)
        await does(api, pod, "reset")
        await agent.report_pod(old, "exited", exit_code=1)
        await agent.listen(0.1)
        assert state(await get_pod(api, pod)) == ("RUNNING", "PROVISIONING")
        new = await sent_spec(agent, pod)
        await does(api, pod, "restart")
        await agent.report_pod(new, "failed", reason="x")
        await agent.listen(0.1)
        assert state(await get_pod(api, pod))[0] == "RUNNING"
        await agent.report_pod(await sent_spec(agent, pod), "running")
        await agent.listen(0.1)
        assert state(await get_pod(api, pod)) == ("RUNNING", "RUNNING")


@once
async def test_a_node_reports_nothing_about_another_nodes_pods() -> None:
    async with joined("node-1", "node-2") as (api, (one, two), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        own, other = (one, two) if (await get_pod(api, pod))["machineId"] == "node-1" else (two, one)
        spec = await sent_spec(own, pod)
        await other.report_pod(spec, "running")
        await other.listen(0.1)
        assert state(await get_pod(api, pod)) == ("RUNNING", "PROVISIONING")


@story
async def test_the_pod_of_a_silent_node_keeps_its_wish_and_shows_that() -> None:
    async with joined("node-1") as (api, (agent,), tasks):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        spec = await sent_spec(agent, pod)
        await agent.report_pod(spec, "running", ports=(PortMapping(22, 10341, "tcp"),))
        await agent.listen(0.1)
        await agent.leaves()
        found = await get_pod(api, pod)
        assert state(found) == ("RUNNING", "ERROR")
        assert "node node-1 is not connected" in found["reason"]
        await does(api, pod, "restart")

        held = [HeldPod(pod, 1, 0, "running")]
        await agent.connect(tasks, devices=(*GPUS, CPU), facts=FACTS, pods=held)
        spec = await sent_spec(agent, pod)
        assert (spec.wish, spec.restarts) == ("RUNNING", 1)
        assert state(await get_pod(api, pod)) == ("RUNNING", "STARTING")
        await agent.report_pod(spec, "running")
        await agent.listen(0.1)
        assert state(await get_pod(api, pod)) == ("RUNNING", "RUNNING")


@story
async def test_what_a_hello_does_not_hold_is_not_there() -> None:
    async with joined("node-1") as (api, (agent,), tasks):
        kept, lost = [(await api.made("/pods", imageName=IMAGE))["id"] for _ in range(2)]
        for pod in (kept, lost):
            await agent.report_pod(
                await sent_spec(agent, pod), "running", ports=(PortMapping(22, 10341, "tcp"),)
            )
        await agent.listen(0.1)
        await agent.leaves()
        held = [HeldPod(kept, 1, 0, "running"), HeldPod("another-s-pod", 1, 0, "running")]
        await agent.connect(tasks, devices=(*GPUS, CPU), facts=FACTS, pods=held)
        await agent.listen(0.1)
        assert set(agent.pods) == {kept, lost}
        found = await get_pod(api, kept)
        assert (state(found), found["portMappings"]) == (("RUNNING", "RUNNING"), {"22": 10341})
        assert state(await get_pod(api, lost)) == ("RUNNING", "PROVISIONING")
        assert api.plane.cluster.pods.keys() == {kept, lost}


@story
async def test_another_control_process_finds_everything_again() -> None:
    async with joined("node-1") as (api, (agent,), tasks):
        await api.http.put("/secrets/word", json={"value": "hush"})
        pod = (await api.made("/pods", imageName=IMAGE, env={"A": "{{ STOKER_SECRET_word }}"}))["id"]
        deleted = (await api.made("/pods", imageName=IMAGE))["id"]
        before = await sent_spec(agent, pod)
        await agent.report_pod(before, "running")
        await agent.listen(0.1)
        await api.http.delete(f"/pods/{deleted}")
        agent.stream.end("control is killed")
        await api.again()
        api.run()
        assert state(await get_pod(api, pod)) == ("RUNNING", "ERROR")
        again = api.world.agent()
        held = [HeldPod(pod, 1, 0, "running"), HeldPod(deleted, 1, 0, "running")]
        await again.connect(tasks, devices=(*GPUS, CPU), facts=FACTS, pods=held)
        assert await sent_spec(again, pod) == before
        assert state(await get_pod(api, pod)) == ("RUNNING", "RUNNING")
        assert again.pods[deleted].wish == "TERMINATED"
        assert "throttled" in await refused(api, "/pods", imageName=IMAGE)
        again.stream.end("the test is over")


@story
async def test_an_uncertain_commit_is_found_by_the_nodes_next_hello() -> None:
    async with joined("node-1") as (api, _, tasks):
        api.world.commits.uncertain = 2  # the audit's is the first
        await refused(api, "/pods", 503, imageName=IMAGE)
        (pod,) = (await api.http.get("/pods")).json()
        again = api.world.agent()
        await again.connect(tasks, devices=(*GPUS, CPU), facts=FACTS)
        spec = await sent_spec(again, pod["id"])
        assert (spec.wish, spec.devices) == ("RUNNING", ("GPU-0",))
        assert pod["id"] in api.plane.cluster.pods
        again.stream.end("the test is over")
