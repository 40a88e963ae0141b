"""/v1/nodes: the hosts that joined, with their devices and what holds them; drains, resumes and deletes
them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from msgspec.structs import asdict
from pydantic import ConfigDict, Field

from stoker.control.http.management.operations.avoided import AvoidedResponse, avoided_response
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import (
    DELETES,
    LISTS,
    READS,
    After,
    Limit,
    ResponseBody,
    id_in_path,
)
from stoker.control.resources.nodes import HeldDevice, Holder, KnownNode, NodeFilter, State
from stoker.control.rules.nodes import disk
from stoker.control.rules.nodes.ways import Way
from stoker.control.rules.weights import HeldWeights, held_weights
from stoker.wire.messages import DeviceSample
from stoker.wire.messages.weights import HELD, SIZES

router = APIRouter(prefix="/nodes", tags=["nodes"])

LABEL = "label."


class HolderResponse(ResponseBody):
    """A worker or a pod that holds a device."""

    model_config = ConfigDict(title="DeviceHolder")

    workerId: str | None = None
    endpointId: str | None = None
    podId: str | None = None
    share: Annotated[float, Field(description="The part of the device that it takes; 1 is all of it.")]


class DeviceResponse(ResponseBody):
    model_config = ConfigDict(title="Device")

    id: Annotated[str, Field(description="As the driver names it: a GPU's or MIG device's UUID.")]
    kind: Annotated[str, Field(description="gpu, mig or cpu.")]
    name: Annotated[str, Field(description="What gpuTypeIds are compared with.")]
    index: int
    parentId: Annotated[str | None, Field(description="Of a MIG device: its GPU.")] = None
    memoryInBytes: Annotated[int | None, Field(description="Absent where its driver does not tell.")] = None
    unifiedMemory: Annotated[
        bool | None,
        Field(
            description="True of a GPU that uses the host's memory: the numbers of its memory are the host's."
        ),
    ] = None
    memoryUsedInBytes: int | None = None
    utilization: Annotated[int | None, Field(description="Percent.")] = None
    temperature: Annotated[int | None, Field(description="Degrees Celsius.")] = None
    power: Annotated[float | None, Field(description="Watts.")] = None
    driver: str | None = None
    ill: Annotated[
        str | None, Field(description="Why nothing is placed on it; absent while it is healthy.")
    ] = None
    heldBy: list[HolderResponse]


class HeldWeightsResponse(ResponseBody):
    """Weights that a node holds, whole and verified."""

    model_config = ConfigDict(title="NodeWeights")

    name: Annotated[str, Field(description="Of the entry of the lock file.")]
    digest: Annotated[str, Field(description="Of the names and digests of its files.")]
    sizeInBytes: int | None = None


class ReachedResponse(ResponseBody):
    """The way in which control reaches the workers of load-balancing endpoints on a node."""

    model_config = ConfigDict(title="NodeReached")

    way: Annotated[
        Way,
        Field(description="local: on control's host; direct: its gateway port; tunnel: its agent's stream."),
    ]
    why: Annotated[str, Field(description="Why in this way, and in no earlier one.")]


class NodeResponse(ResponseBody):
    model_config = ConfigDict(
        title="Node",
        json_schema_extra={
            "examples": [
                {
                    "id": "n4f0k2c9xw",
                    "name": "gpu-host-1",
                    "state": "connected",
                    "drained": False,
                    "leaving": False,
                    "credentialId": "9a1c2e5f0b7d",
                    "revoked": False,
                    "lastSeenAt": "2026-01-01T00:00:00Z",
                    "dataCenterId": "EU-RO-1",
                    "labels": {"tier": "gold"},
                    "facts": {"cuda": "12.8", "vcpus": "64"},
                    "reached": {"way": "direct", "why": "its gateway port, 10.0.0.7:8002"},
                    "devices": [
                        {
                            "id": "GPU-8f6d2c1e-0000-0000-0000-000000000000",
                            "kind": "gpu",
                            "name": "NVIDIA H200",
                            "index": 0,
                            "memoryInBytes": 150_754_820_096,
                            "heldBy": [{"workerId": "w1k2", "endpointId": "jpnw0v75y3qoql", "share": 1.0}],
                        }
                    ],
                    **{"agentVersion": "0.2.0", "diskFreeInBytes": 812_000_000_000},
                    **{"diskTotalInBytes": 1_900_000_000_000, "workers": 1, "jobs": 1, "pods": 0},
                    "weights": [
                        {
                            "name": "flux-1-schnell",
                            "digest": "9a1c2e5f0b7d3344",
                            "sizeInBytes": 33_745_280_712,
                        }
                    ],
                }
            ]
        },
    )

    id: str
    name: str
    state: Annotated[
        State,
        Field(
            description="`silent`: its connection broke, and it may come back; `gone`: others got its jobs."
        ),
    ]
    drained: Annotated[bool, Field(description="Nothing new goes there until it is resumed.")]
    leaving: Annotated[bool, Field(description="Its agent is shutting down.")]
    credentialId: Annotated[
        str | None, Field(description="Of the credential with which its agent reconnects.")
    ] = None
    revoked: Annotated[bool, Field(description="Its credential is good no more.")]
    lastSeenAt: datetime
    dataCenterId: str | None = None
    labels: dict[str, str]
    facts: Annotated[dict[str, str], Field(description="What else its agent reports of it.")]
    reached: Annotated[
        ReachedResponse | None,
        Field(description="Absent while no way leads to workers of load-balancing endpoints there."),
    ] = None
    devices: list[DeviceResponse]
    agentVersion: Annotated[str | None, Field(description="Absent of agents before 0.2.")] = None
    diskFreeInBytes: Annotated[int | None, Field(description="Of the agent's data folder.")] = None
    diskTotalInBytes: int | None = None
    workers: Annotated[int, Field(description="Workers on the node.")]
    jobs: Annotated[int, Field(description="Jobs and requests that its workers have.")]
    pods: Annotated[int, Field(description="Pods on the node.")]
    avoidedFor: Annotated[
        list[AvoidedResponse] | None, Field(description="Absent while every version may go there.")
    ] = None
    weights: Annotated[
        list[HeldWeightsResponse] | None, Field(description="Absent where its agent keeps none.")
    ] = None


NodeId = Annotated[str, id_in_path("node")]


def _holder(holder: Holder) -> HolderResponse:
    return HolderResponse(
        workerId=holder.worker or None,
        endpointId=holder.endpoint or None,
        podId=holder.pod or None,
        share=round(holder.share, 4),
    )


def _device(known: HeldDevice) -> DeviceResponse:
    device, sample = known.device, known.sample or DeviceSample(known.device.uuid)
    return DeviceResponse(
        id=device.uuid,
        kind=device.kind,
        name=device.name,
        index=device.index,
        parentId=device.parent,
        memoryInBytes=device.memory_total,
        unifiedMemory=device.unified_memory or None,
        memoryUsedInBytes=sample.memory_used,
        utilization=sample.utilisation,
        temperature=sample.temperature,
        power=sample.power,
        driver=device.driver,
        ill=sample.ill or None,
        heldBy=[_holder(holder) for holder in known.holders],
    )


def _weights(held: HeldWeights) -> HeldWeightsResponse:
    return HeldWeightsResponse(name=held.name, digest=held.digest, sizeInBytes=held.size_bytes)


def _response(known: KnownNode) -> NodeResponse:
    record = known.record
    named = {name for name in record.facts if name.startswith(LABEL)} | {
        *("data_center", HELD, SIZES),
        *("agent_version", disk.FREE, disk.TOTAL),
    }
    held = held_weights(record.facts)
    return NodeResponse(
        id=record.id,
        name=record.name,
        state=known.state,
        drained=record.drained,
        leaving=known.leaving,
        credentialId=record.credential or None,
        revoked=record.revoked_at is not None,
        lastSeenAt=datetime.fromtimestamp(record.seen_at, UTC),
        dataCenterId=record.facts.get("data_center"),
        labels={n.removeprefix(LABEL): value for n, value in record.facts.items() if n.startswith(LABEL)},
        facts={name: value for name, value in record.facts.items() if name not in named},
        reached=None if known.reached is None else ReachedResponse(**asdict(known.reached)),
        devices=[_device(device) for device in known.devices],
        agentVersion=record.facts.get("agent_version"),
        diskFreeInBytes=disk.bytes_of(record.facts, disk.FREE),
        diskTotalInBytes=disk.bytes_of(record.facts, disk.TOTAL),
        workers=known.workers,
        jobs=known.jobs,
        pods=known.pods,
        avoidedFor=[avoided_response(one) for one in known.avoided] or None,
        weights=None if held is None else [_weights(one) for one in held],
    )


@router.get("", responses=LISTS, response_model_exclude_none=True)
async def list_nodes(
    by: By,
    managed: Managed,
    state: Annotated[State | None, Query()] = None,
    drained: Annotated[bool | None, Query()] = None,
    search: Annotated[str, Query(max_length=191, description="A part of the name or of the id.")] = "",
    limit: Limit = None,
    after: After = None,
) -> list[NodeResponse]:
    """Lists nodes by their name, those that are gone too. With `limit`, a page that has fewer is the last."""
    asked = NodeFilter(state, drained, search, after, limit)
    return [_response(known) for known in await managed.nodes.list(by.account, asked)]


@router.get("/{nodeId}", responses=READS, response_model_exclude_none=True)
async def get_node(by: By, managed: Managed, nodeId: NodeId) -> NodeResponse:
    """Returns a node."""
    return _response(await managed.nodes.get(by.account, nodeId))


@router.post("/{nodeId}/drain", responses=READS, response_model_exclude_none=True)
async def drain_node(
    by: By,
    managed: Managed,
    nodeId: NodeId,
    jobsYield: Annotated[
        bool,
        Query(description="Jobs that save stop at their next save, and go on elsewhere."),
    ] = False,
) -> NodeResponse:
    """Places nothing new on a node: its idle workers stop, its busy workers finish, and its pods stay."""
    return _response(await managed.nodes.drain(by.account, nodeId, drained=True, jobs_yield=jobsYield))


@router.post("/{nodeId}/resume", responses=READS, response_model_exclude_none=True)
async def resume_node(by: By, managed: Managed, nodeId: NodeId) -> NodeResponse:
    """Places work again on a node that was drained."""
    return _response(await managed.nodes.drain(by.account, nodeId, drained=False))


@router.post("/{nodeId}/revoke", responses=READS, response_model_exclude_none=True)
async def revoke_node(by: By, managed: Managed, nodeId: NodeId) -> NodeResponse:
    """Turns a node out: its credential is good no more, and its connection ends. The node comes in again with
    a join token that is made after this, once `node_credential` was removed from its data folder."""
    return _response(await managed.nodes.revoke(by.account, nodeId))


@router.delete("/{nodeId}", **DELETES)
async def delete_node(by: By, managed: Managed, nodeId: NodeId) -> None:
    """Forgets a node that is gone and holds no pod. If its agent joins again, that makes a new node."""
    await managed.nodes.delete(by.account, nodeId)
