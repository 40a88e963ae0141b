"""The key that a pod finds in its environment: it reads and stops this pod, and goes with it."""

from __future__ import annotations

from tests.control.http.management.managed import V2
from tests.control.http.management.pods.pod_world import FACTS, IMAGE, joined, once, sent_spec

EVERYWHERE = FACTS | {"public_ip": "192.0.2.7", "memory_bytes": "62500000000"}


@once
async def test_the_environment_names_the_node_of_a_pod() -> None:
    async with joined("node-1", facts=EVERYWHERE) as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE, env={"A": "b"}))["id"]
        spec = await sent_spec(agent, pod)
        assert {name: value for name, value in spec.env.items() if name != "RUNPOD_API_KEY"} == {
            "A": "b",
            "RUNPOD_CPU_COUNT": "16",
            "RUNPOD_DC_ID": "EU-RO-1",
            "RUNPOD_MEM_GB": "62",
            "RUNPOD_PUBLIC_IP": "192.0.2.7",
        }
        assert spec.env["RUNPOD_API_KEY"] in spec.hidden
        assert "RUNPOD" not in (await api.http.get(f"/pods/{pod}")).text
        cpu = (await api.made("/pods", imageName=IMAGE, computeType="CPU", vcpuCount=3))["id"]
        assert (await sent_spec(agent, cpu)).env["RUNPOD_CPU_COUNT"] == "3"
        own = (await api.made("/pods", imageName=IMAGE, env={"RUNPOD_API_KEY": "mine"}))["id"]
        assert (await sent_spec(agent, own)).env["RUNPOD_API_KEY"] == "mine"


@once
async def test_its_key_reads_and_stops_it_and_nothing_else() -> None:
    async with joined("node-1", facts=EVERYWHERE) as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        other = (await api.made("/pods", imageName=IMAGE))["id"]
        key = {"Authorization": f"Bearer {(await sent_spec(agent, pod)).env['RUNPOD_API_KEY']}"}
        for method, path in (
            ("GET", "/pods"),
            ("POST", "/pods"),
            ("GET", f"/pods/{other}"),
            ("POST", f"/pods/{other}/stop"),
            ("PATCH", f"/pods/{pod}"),
            ("POST", f"/pods/{pod}/update"),
            ("POST", f"/pods/{pod}/start"),
            ("POST", f"/pods/{pod}/restart"),
            ("POST", f"/pods/{pod}/reset"),
            ("DELETE", f"/pods/{pod}"),
            ("GET", f"/pods/{pod}/stop"),
            ("GET", f"/pods/{pod}/"),
            ("GET", "/keys"),
            ("GET", "/nodes"),
            ("PUT", "/secrets/s"),
            ("GET", "/audit"),
            ("GET", "/billing/pods"),
            ("GET", f"{V2}/echo/health"),
            ("POST", f"{V2}/echo/run"),
        ):
            answer = await api.http.request(method, path, headers=key, json={} if method != "GET" else None)
            assert answer.status_code == 401, (method, path)
        assert (await api.http.get(f"/pods/{pod}", headers=key)).json()["id"] == pod
        stopped = await api.http.post(f"/pods/{pod}/stop", headers=key)
        assert (stopped.status_code, stopped.json()["desiredStatus"]) == (200, "EXITED")
        line = (await api.http.get("/audit", params={"limit": 1})).json()[0]
        assert (line["path"], line["status"]) == (f"/v1/pods/{pod}/stop", 200)
        found = [one for one in (await api.http.get("/keys")).json() if one["name"] == f"pod {pod}"]
        assert [one["access"] for one in found] == [{"scope": "pod", "pod": pod}]
        assert line["key"] == found[0]["id"]


@once
async def test_its_key_stays_over_restarts_of_control_and_goes_with_it() -> None:
    async with joined("node-1", facts=EVERYWHERE) as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        token = (await sent_spec(agent, pod)).env["RUNPOD_API_KEY"]
        key = {"Authorization": f"Bearer {token}"}
        assert (await api.http.post(f"/pods/{pod}/reset")).status_code == 200
        assert (await sent_spec(agent, pod)).env["RUNPOD_API_KEY"] == token
        assert (await api.http.get(f"/pods/{pod}", headers=key)).status_code == 200
        assert token.encode() not in b"".join(
            bytes(row[0]) for row in api.world.store.writer.run("SELECT body FROM pods", {}).fetchall()
        )
        assert (await api.http.delete(f"/pods/{pod}")).status_code == 204
        refused = await api.http.get(f"/pods/{pod}", headers=key)
        assert (refused.status_code, refused.json()["error"]) == (401, "invalid api key")


@once
async def test_a_pod_that_is_locked_keeps_its_key() -> None:
    async with joined("node-1", facts=EVERYWHERE) as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE, locked=True))["id"]
        key = {"Authorization": (await sent_spec(agent, pod)).env["RUNPOD_API_KEY"]}
        assert (await api.http.delete(f"/pods/{pod}")).status_code == 400
        assert (await api.http.get(f"/pods/{pod}", headers=key)).status_code == 200


@once
async def test_a_worker_knows_its_node() -> None:
    async with joined("node-1", facts=EVERYWHERE) as (api, (agent,), _):
        fields = {"name": "t", "imageName": "worker:1", "env": {"RUNPOD_DC_ID": "mine"}}
        template = (await api.made("/templates", **fields))["id"]
        await api.made("/endpoints", templateId=template, workersMin=1)
        (worker,) = await agent.ready_workers()
        env = agent.specs[worker].env
        assert env == {"RUNPOD_CPU_COUNT": "16", "RUNPOD_DC_ID": "mine"}


@once
async def test_ports_that_are_the_same_inside_and_outside_are_requested() -> None:
    async with joined("node-1") as (api, (agent,), _):
        for ports in (["70000/tcp", "22/tcp"], "70000/tcp,22/tcp"):
            made = await api.made("/pods", imageName=IMAGE, ports=ports)
            assert made["ports"] == ["70000/tcp", "22/tcp"]
            spec = await sent_spec(agent, made["id"])
            assert [(one.private, one.protocol) for one in spec.ports] == [(70_000, "tcp"), (22, "tcp")]
