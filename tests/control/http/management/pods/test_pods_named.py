"""Pods over HTTP: templates, volumes, secrets and machines beside them; and lists."""

from __future__ import annotations

from stoker.wire.messages import RegistryAuth
from tests.control.http.management.pods.pod_world import (
    FACTS,
    IMAGE,
    as_requested,
    get_pod,
    joined,
    once,
    refused,
    sent_spec,
)


@once
async def test_a_template_fills_what_the_body_leaves_out() -> None:
    async with joined("node-1") as (api, (agent,), _):
        template = await api.made(
            "/templates",
            name="t",
            imageName=IMAGE,
            ports=["80/http"],
            env={"A": "template", "B": "template"},
            volumeInGb=7,
            containerDiskInGb=8,
            volumeMountPath="/data",
            dockerStartCmd=["serve"],
        )
        made = await api.made("/pods", templateId=template["id"], env={"A": "pod"}, volumeInGb=9)
        assert made["templateId"] == template["id"]
        assert (made["image"], made["ports"]) == (IMAGE, ["80/http"])
        assert made["env"] == {"A": "pod", "B": "template"}
        assert (made["volumeInGb"], made["containerDiskInGb"]) == (9, 8)
        assert (made["volumeMountPath"], made["dockerStartCmd"]) == ("/data", ["serve"])
        assert "template" not in await get_pod(api, made["id"])
        whole = await get_pod(api, made["id"], includeTemplate=True)
        assert whole["template"]["id"] == template["id"]
        assert (await sent_spec(agent, made["id"])).command == ("serve",)


@once
async def test_a_network_volume_is_mounted_and_cannot_be_deleted_under_a_pod() -> None:
    async with joined("node-1") as (api, (agent,), _):
        volume = (await api.made("/networkvolumes", name="v", size=50, dataCenterId="EU-RO-1"))["id"]
        pod = (await api.made("/pods", imageName=IMAGE, networkVolumeId=volume))["id"]
        assert (await sent_spec(agent, pod)).volume == volume
        found = await get_pod(api, pod, includeNetworkVolume=True)
        assert found["networkVolumeId"] == volume
        assert found["networkVolume"]["size"] == 50
        assert f"pod {pod}" in await refused(api, f"/networkvolumes/{volume}", method="DELETE")
        await api.http.delete(f"/pods/{pod}")
        assert (await api.http.delete(f"/networkvolumes/{volume}")).status_code == 204


@once
async def test_a_network_volume_elsewhere_restricts_the_nodes() -> None:
    async with joined("node-1") as (api, _, _):
        volume = (await api.made("/networkvolumes", name="v", size=50, dataCenterId="CA-MTL-1"))["id"]
        why = await refused(api, "/pods", imageName=IMAGE, networkVolumeId=volume)
        assert "is in data center EU-RO-1" in why


@once
async def test_secrets_and_registry_auths_reach_the_node_and_nobody_else() -> None:
    async with joined("node-1") as (api, (agent,), _):
        await api.http.put("/secrets/word", json={"value": "hush"})
        auth = await api.made("/containerregistryauth", name="r", username="u", password="p")
        reference = "pre-{{ RUNPOD_SECRET_word }}"
        made = await api.made(
            "/pods", imageName=IMAGE, env={"A": reference}, containerRegistryAuthId=auth["id"]
        )
        assert made["env"] == {"A": reference}
        assert made["containerRegistryAuthId"] == auth["id"]
        spec = await sent_spec(agent, made["id"])
        assert (as_requested(spec).env, as_requested(spec).hidden) == ({"A": "pre-hush"}, ("hush",))
        assert spec.registry == RegistryAuth("u", "p")
        assert f"pod {made['id']}" in await refused(
            api, f"/containerregistryauth/{auth['id']}", method="DELETE"
        )


@once
async def test_the_machine_is_shown_when_it_is_requested() -> None:
    async with joined("node-1", facts=FACTS | {"public_ip": "10.1.1.1"}) as (api, _, _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        assert "machine" not in await get_pod(api, pod)
        api.management.billing.pod_hour = lambda pod: 740_000_000
        found = await get_pod(api, pod, includeMachine=True)
        gpu = {"id": "NVIDIA GeForce RTX 4090", "count": 1, "displayName": "RTX 4090", "securePrice": 0.74}
        assert found["machine"] == {
            "costPerHr": 0.74,
            "currentPricePerGpu": 0.74,
            "cpuCount": 16,
            "cpuTypeId": "a processor",
            "dataCenterId": "EU-RO-1",
            "gpuDisplayName": "RTX 4090",
            "gpuType": gpu,
            "gpuTypeId": "NVIDIA GeForce RTX 4090",
            "supportPublicIp": True,
        }
        assert (found["costPerHr"], found["adjustedCostPerHr"]) == (0.74, 0.74)


@once
async def test_workers_are_listed_as_pods_when_they_are_requested() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE, name="a pod"))["id"]
        template = (await api.made("/templates", name="t", imageName="worker:1"))["id"]
        endpoint = (await api.made("/endpoints", name="e", templateId=template, workersMin=1))["id"]
        (worker,) = await agent.ready_workers()
        everything = {"includeWorkers": True}
        for query, wanted in (
            ({}, [pod, worker]),
            ({"endpointId": endpoint}, [worker]),
            ({"templateId": template}, [worker]),
            ({"imageName": "worker:1"}, [worker]),
            ({"id": worker}, [worker]),
            ({"gpuTypeId": "NVIDIA GeForce RTX 4090"}, [pod, worker]),
            ({"computeType": "CPU"}, []),
            ({"desiredStatus": "RUNNING"}, [pod, worker]),
            ({"desiredStatus": "EXITED"}, []),
            ({"dataCenterId": "EU-RO-1"}, [pod, worker]),
            ({"dataCenterId": "US-TX-1"}, []),
            ({"networkVolumeId": "v"}, []),
            ({"cpuFlavorId": "cpu3c"}, []),
            ({"name": "a pod"}, [pod]),
        ):
            listed = (await api.http.get("/pods", params=everything | query)).json()
            assert [one["id"] for one in listed] == wanted, query
            without = (await api.http.get("/pods", params=query)).json()
            assert [one["id"] for one in without] == [one for one in wanted if one == pod]
        assert (await get_pod(api, worker, includeWorkers=True))["endpointId"] == endpoint
        assert await refused(api, f"/pods/{worker}", 404, "GET")
        assert await refused(api, "/pods/none?includeWorkers=true", 404, "GET")


@once
async def test_lists_are_filtered_by_every_parameter() -> None:
    async with joined("node-1") as (api, _, _):
        volume = (await api.made("/networkvolumes", name="v", size=5, dataCenterId="EU-RO-1"))["id"]
        template = (await api.made("/templates", name="t", imageName="of-template:1"))["id"]
        gpu = (await api.made("/pods", imageName=IMAGE, name="gpu"))["id"]
        cpu = (
            await api.made(
                "/pods",
                templateId=template,
                computeType="CPU",
                cpuFlavorIds=["cpu3g"],
                networkVolumeId=volume,
            )
        )["id"]
        stopped = (await api.made("/pods", imageName=IMAGE, desiredStatus="EXITED"))["id"]
        for query, wanted in (
            ({}, [gpu, cpu, stopped]),
            ({"computeType": "GPU"}, [gpu, stopped]),
            ({"computeType": "CPU"}, [cpu]),
            ({"cpuFlavorId": ["cpu3c", "cpu3g"]}, [cpu]),
            ({"cpuFlavorId": "cpu3c"}, []),
            ({"cpuFlavorId": "cpu9"}, []),
            ({"id": "X!"}, []),
            ({"dataCenterId": ["EU-RO-1", "US-TX-1"]}, [gpu, cpu]),
            ({"dataCenterId": "US-TX-1"}, []),
            ({"desiredStatus": "RUNNING"}, [gpu, cpu]),
            ({"desiredStatus": "EXITED"}, [stopped]),
            ({"desiredStatus": "TERMINATED"}, []),
            ({"endpointId": "echo"}, []),
            ({"gpuTypeId": ["NVIDIA GeForce RTX 4090"]}, [gpu]),
            ({"gpuTypeId": "NVIDIA H200"}, []),
            ({"id": gpu}, [gpu]),
            ({"imageName": IMAGE}, [gpu, stopped]),
            ({"name": "gpu"}, [gpu]),
            ({"networkVolumeId": volume}, [cpu]),
            ({"templateId": template}, [cpu]),
            ({"includeSavingsPlans": True, "includeWorkers": True}, [gpu, cpu, stopped]),
        ):
            answer = await api.http.get("/pods", params=query)
            assert answer.status_code == 200, answer.text
            assert {pod["id"] for pod in answer.json()} == set(wanted), query
        for query in ({"computeType": "TPU"}, {"desiredStatus": "x"}, {"includeMachine": "2"}):
            answer = await api.http.get("/pods", params=query)
            assert answer.status_code == 400
            assert next(iter(query)) in answer.json()["error"]
