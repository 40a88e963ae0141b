"""Pods in the second shape: what each operation leads to, and that /v1 sees the same."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.wire.messages import PortMapping
from tests.control.http.management.managed import V2, Managed
from tests.control.http.management.pods.pod_world import FACTS, GPUS, IMAGE, get_pod, joined, once, sent_spec
from tests.control.http.management.v2.second_shape import call, get, make

GPU = {"id": "NVIDIA GeForce RTX 4090"}


@once
async def test_a_pod_as_it_is_made_runs_and_ends() -> None:
    facts = FACTS | {"public_ip": "100.65.0.119", "cuda": "12.8"}
    async with joined("node-1", facts=facts) as (api, (agent,), _):
        made = await make(
            api,
            "/pods",
            name="box",
            image=IMAGE,
            args="sleep 'a b'",
            disk=10,
            gpu=GPU,
            env={"A": "1"},
            ports=["22/tcp", "8888/http"],
            mounts={"persistent": {"size": 20, "path": "/data"}},
            startSsh=True,
        )
        assert made["status"] == "PROVISIONING"
        assert made["actions"] == ["stop", "terminate"]
        spec = await sent_spec(agent, made["id"])
        assert spec.command == ("sleep", "a b")
        ports = (PortMapping(22, 20022, "tcp"), PortMapping(8888, 20088, "tcp"))
        await agent.report_pod(spec, "running", ports=ports)
        await agent.listen(0.1)

        pod = await get(api, f"/pods/{made['id']}")
        assert (pod["status"], pod["actions"]) == ("RUNNING", ["stop", "restart", "terminate"])
        assert pod["ssh"]["direct"] == {
            "host": "100.65.0.119",
            "port": 20022,
            "username": "root",
            "command": "ssh root@100.65.0.119 -p 20022",
        }
        assert pod["runtime"]["ports"] == [
            {"private": 22, "public": 20022, "type": "tcp", "ip": "100.65.0.119"},
            {"private": 8888, "public": 20088, "type": "http", "ip": "100.65.0.119"},
        ]
        assert pod["gpu"]["id"] == GPU["id"]
        assert pod["gpu"]["memory"] == (24 << 30) // 10**9
        assert (pod["args"], pod["disk"], pod["env"]) == ("sleep 'a b'", 10, {"A": "1"})
        assert pod["mounts"] == {"persistent": {"size": 20, "path": "/data"}}
        assert (pod["dataCenterId"], pod["cudaVersion"], pod["cloud"]) == ("EU-RO-1", "12.8", "SECURE")
        assert await get(api, "/pods") == {
            "pods": [pod],
            "pagination": {"hasNextPage": False, "nextCursor": None},
        }

        assert await call(api, "POST", f"/pods/{made['id']}/action", 204, action="terminate") is None
        assert (await get(api, "/pods"))["pods"] == []
        await agent.report_pod(await sent_spec(agent, made["id"]), "gone")
        await agent.listen(0.1)
        await call(api, "GET", f"/pods/{made['id']}", 404)
        await call(api, "DELETE", f"/pods/{made['id']}", 404)


@once
async def test_each_state_allows_its_actions_and_refuses_others_by_a_409() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = await make(api, "/pods", name="box", image=IMAGE, gpu=GPU)
        path = f"/pods/{pod['id']}"
        why = await call(api, "POST", f"{path}/action", 409, action="start")
        assert "PROVISIONING; it may stop, terminate, not start" in why
        await agent.report_pod(await sent_spec(agent, pod["id"]), "running")
        await agent.listen(0.1)
        stopping = await call(api, "POST", f"{path}/action", 200, action="stop")
        assert (stopping["status"], stopping["reason"]) == ("RUNNING", "it is being stopped")
        assert "restart" not in stopping["actions"]
        await agent.report_pod(await sent_spec(agent, pod["id"]), "exited", exit_code=0)
        await agent.listen(0.1)
        stopped = await get(api, path)
        assert (stopped["status"], stopped["actions"], stopped["cost"]) == (
            "EXITED",
            ["start", "terminate"],
            0,
        )
        for action in ("stop", "restart"):
            await call(api, "POST", f"{path}/action", 409, action=action)
        await call(api, "POST", f"{path}/action", 422, action="reset")
        started = await call(api, "POST", f"{path}/action", 200, action="start")
        assert started["status"] in ("PROVISIONING", "STARTING")
        await call(api, "PATCH", path, 200, locked=True)
        assert "is locked" in await call(api, "DELETE", path, 409)
        await call(api, "PATCH", path, 200, locked=False)
        await call(api, "DELETE", path, 204)


@once
async def test_a_pod_whose_container_ended_by_itself_can_be_stopped_so_that_its_gpus_are_free() -> None:
    async with joined("node-1", devices=GPUS[:1]) as (api, (agent,), _):
        pod = await make(api, "/pods", name="box", image=IMAGE, gpu=GPU)
        await agent.report_pod(await sent_spec(agent, pod["id"]), "exited", exit_code=1)
        await agent.listen(0.1)
        assert (await get(api, f"/pods/{pod['id']}"))["actions"] == ["start", "stop", "terminate"]
        await call(api, "POST", "/pods", 400, name="other", image=IMAGE, gpu=GPU)
        await call(api, "POST", f"/pods/{pod['id']}/action", 200, action="stop")
        await make(api, "/pods", name="other", image=IMAGE, gpu=GPU)


@once
async def test_what_one_shape_makes_the_other_changes_and_nothing_is_lost() -> None:
    async with joined("node-1") as (api, _, _):
        made = await api.made(
            "/pods",
            name="box",
            imageName=IMAGE,
            dockerEntrypoint=["/bin/sh", "-c"],
            dockerStartCmd=["echo 1; sleep 2"],
            gpuTypeIds=[GPU["id"]],
            env={"A": "1"},
        )
        before = await get_pod(api, made["id"])
        pod = await get(api, f"/pods/{made['id']}")
        assert pod["args"] == "'echo 1; sleep 2'"
        assert pod["mounts"] == {"persistent": {"size": 20, "path": "/workspace"}}
        same = {
            name: pod[name] for name in ("args", "disk", "env", "image", "mounts", "name", "ports", "locked")
        }
        await call(api, "PATCH", f"/pods/{made['id']}", 200, **same)
        assert await get_pod(api, made["id"]) == before | {"lastStatusChange": before["lastStatusChange"]}
        grown = {"persistent": {"size": 40, "path": "/workspace"}}
        await call(api, "PATCH", f"/pods/{made['id']}", 200, mounts=grown, env={"B": "2"})
        after = await get_pod(api, made["id"])
        changed = {name for name in after if after[name] != before.get(name)}
        assert changed == {"env", "volumeInGb", "version", "lastStatusChange"}
        assert (after["env"], after["volumeInGb"]) == ({"B": "2"}, 40)


@once
async def test_a_pod_without_a_template_has_no_ports_and_no_volume_that_it_did_not_ask_for() -> None:
    async with joined("node-1") as (api, _, _):
        pod = await make(api, "/pods", name="box", image=IMAGE, gpu=GPU)
        assert (pod["ports"], pod["mounts"], pod["ssh"]["direct"], pod["runtime"]) == ([], {}, None, None)


@once
async def test_a_template_is_copied_and_the_bodys_fields_win() -> None:
    async with joined("node-1") as (api, _, _):
        template = await api.made(
            "/templates", name="t", imageName=IMAGE, env={"A": "1", "B": "1"}, volumeInGb=30
        )
        pod = await make(api, "/pods", name="box", templateId=template["id"], gpu=GPU, env={"B": "2"}, disk=5)
        assert (pod["image"], pod["env"], pod["disk"]) == (IMAGE, {"A": "1", "B": "2"}, 5)
        assert pod["mounts"] == {"persistent": {"size": 30, "path": "/workspace"}}
        assert pod["template"] == {"id": template["id"]}
        other = await api.made("/templates", name="u", imageName="other:2", env={"C": "3"})
        changed = await call(api, "PATCH", f"/pods/{pod['id']}", 200, templateId=other["id"], env={"D": "4"})
        assert (changed["image"], changed["env"]) == ("other:2", {"C": "3", "D": "4"})
        assert changed["template"] == {"id": other["id"]}
        assert changed["mounts"] == pod["mounts"]


SERVERLESS = {"name": "s", "imageName": IMAGE, "isServerless": True}


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (422, {"name": "p", "imageName": IMAGE, "gpu": GPU}, "imageName is not a known field"),
        (422, {"image": IMAGE, "gpu": GPU}, "name is required and missing"),
        (422, {"name": "p", "image": IMAGE, "gpu": {**GPU, "count": "1"}}, "gpu.count"),
        (422, {"name": "p", "image": IMAGE, "cpu": {"id": "cpu3c", "vcpuCount": 3}}, "power of two; got 3"),
        (
            422,
            {"name": "p", "image": IMAGE, "gpu": GPU, "mounts": {"persistent": {"size": 10}}},
            "path is required",
        ),
        (400, {"name": "p", "image": IMAGE}, "either gpu or cpu; got neither"),
        (400, {"name": "p", "gpu": GPU}, "image is required and missing"),
        (400, {"name": "p", "image": IMAGE, "gpu": {"id": "GTX 1"}}, "gpu.id must hold names out of: NVIDIA"),
        (400, {"name": "p", "image": IMAGE, "gpu": GPU, "args": "'"}, "args must be quoted"),
        (
            400,
            {
                "name": "p",
                "image": IMAGE,
                "gpu": GPU,
                "mounts": {"network": [{"volumeId": "v", "path": "/a"}]},
            },
            "mounts.network must be the id of a network volume; there is none of 'v'",
        ),
        (
            400,
            {
                "name": "p",
                "image": IMAGE,
                "cpu": {"id": "cpu3c", "vcpuCount": 2},
                "mounts": {"persistent": {"size": 10, "path": "/a"}},
            },
            "mounts.persistent is for pods with a gpu",
        ),
        (
            400,
            {
                "name": "p",
                "image": IMAGE,
                "gpu": {**GPU, "allowedCudaVersions": ["12.8"], "minCudaVersion": "12.8"},
            },
            "either allowedCudaVersions or minCudaVersion",
        ),
        (404, {"name": "p", "templateId": "none", "gpu": GPU}, "no template 'none'"),
        (400, {"name": "p", "image": IMAGE, "gpu": GPU}, "no node is connected"),
    ],
)
async def test_what_cannot_be_made_is_refused_in_words_of_this_shape(
    api: Managed, status: int, body: dict[str, Any], why: str
) -> None:
    assert why in await call(api, "POST", "/pods", status, **body)


async def test_a_template_for_endpoints_is_a_422(api: Managed) -> None:
    template = await api.made("/templates", **SERVERLESS)
    why = await call(api, "POST", "/pods", 422, name="p", templateId=template["id"], gpu=GPU)
    assert "must be of a template for a pod" in why


@once
async def test_pages() -> None:
    async with joined("node-1") as (api, _, _):
        made = [await api.made("/pods", imageName=IMAGE, desiredStatus="EXITED") for _ in range(3)]
        first = await get(api, "/pods?limit=2")
        assert first["pagination"]["hasNextPage"] is True
        last = await get(api, f"/pods?cursor={first['pagination']['nextCursor']}&page=9")
        found = [one["id"] for one in first["pods"] + last["pods"]]
        assert sorted(found) == sorted(one["id"] for one in made)
        assert "cursor must be" in await call(api, "GET", "/pods?cursor=x", 422)
        assert "limit" in await call(api, "GET", "/pods?limit=0", 422)


@once
async def test_a_pods_own_key_may_read_and_stop_it_and_no_more() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod, other = [await make(api, "/pods", name=name, image=IMAGE, gpu=GPU) for name in "ab"]
        key = (await sent_spec(agent, pod["id"])).env["RUNPOD_API_KEY"]
        api.http.headers["Authorization"] = f"Bearer {key}"
        await get(api, f"/pods/{pod['id']}")
        await call(api, "POST", f"/pods/{pod['id']}/action", 403, action="terminate")
        await call(api, "POST", f"/pods/{pod['id']}/action", 200, action="stop")
        for method, path in (
            ("GET", "/pods"),
            ("GET", f"/pods/{other['id']}"),
            ("DELETE", f"/pods/{pod['id']}"),
        ):
            assert f"of pod {pod['id']}" in await call(api, method, path, 403)


async def test_an_id_may_have_any_character_and_is_one_segment(api: Managed) -> None:
    assert "'p 1/x'" in await call(api, "GET", "/pods/p%201%2Fx", 404)
    answer = await api.http.get(V2 + "/pods/p%201%2Fx/logs/y")
    assert answer.status_code == 404
    assert "nothing at this path" in answer.json()["detail"]
