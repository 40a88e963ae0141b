"""Whatever goes wrong within an operation, what is kept in memory is what the store has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stoker.control import store
from stoker.control.errors import Unavailable, UncertainCommit
from stoker.control.store.nodes.joined_nodes import drained_nodes
from tests.control.http.management.managed import Managed, managed
from tests.control.plane_world import endpoint, story

IMAGE = "ghcr.io/a/b:1"
VOLUME = {"name": "v", "size": 1, "dataCenterId": "EU-RO-1"}


async def operations(api: Managed) -> list[tuple[str, str, dict[str, Any] | None]]:
    """One of each kind that something is kept of, on things that are there."""
    template = (await api.made("/templates", name="t", imageName=IMAGE))["id"]
    first, second = [(await api.made("/endpoints", templateId=template))["id"] for _ in range(2)]
    volume, another = [(await api.made("/networkvolumes", **VOLUME))["id"] for _ in range(2)]
    for name in ("s", "gone"):
        await api.http.put(f"/secrets/{name}", json={"value": "old"})
    return [
        ("POST", "/endpoints", {"templateId": template}),
        ("PATCH", f"/endpoints/{first}", {"gpuCount": 2, "workersMax": 5}),
        ("PATCH", f"/templates/{template}", {"env": {"A": "1"}}),
        ("DELETE", f"/endpoints/{second}", None),
        ("POST", "/networkvolumes", VOLUME),
        ("PATCH", f"/networkvolumes/{volume}", {"size": 2}),
        ("DELETE", f"/networkvolumes/{another}", None),
        ("PUT", "/secrets/s", {"value": "new"}),
        ("DELETE", "/secrets/gone", None),
        ("POST", "/nodes/n1/drain", None),
    ]


def memory(api: Managed) -> dict[str, Any]:
    managed = api.management
    secrets = managed.secrets._values.by_account.values()
    return {
        "endpoints": dict(api.plane.endpoints.by_id),
        "volumes": dict(managed.volumes.desired.known),
        "secrets": {name: value for own in secrets for name, value in own.items()},
        "drained": set(api.plane.cluster.drained),
    }


def stored(api: Managed) -> dict[str, Any]:
    conn = api.world.store.writer
    return {
        "endpoints": {one.id: one for one in store.list_endpoints(conn)},
        "volumes": {one.id: one for one in store.list_volumes(conn)},
        "secrets": {name: value for own in store.read_secrets(conn).values() for name, value in own.items()},
        "drained": set(drained_nodes(conn)),
    }


@pytest.mark.parametrize(
    "error", [Unavailable("the disk is full"), UncertainCommit("the database went away")]
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_commit_of_an_operation_fails(error: Exception, number: int) -> None:
    """The first commit begins the line of the audit log; the second is the operation's."""

    @story
    async def play() -> None:
        async with managed(endpoint()) as api:
            api.run()
            await api.world.commits.commit(join)
            for method, path, body in await operations(api):
                api.world.commits.commit = failing(api, number, error)  # type: ignore[method-assign]
                answer = await api.http.request(method, path, json=body)
                assert answer.status_code == 503, (method, path, answer.text)
                await asyncio.sleep(3)
                assert memory(api) == stored(api), (method, path)

    play(1)


def join(conn: Any) -> None:
    store.open_session(
        conn, node="n1", boot="b1", name="n1", devices=(), facts={}, now=1_000_000.0, lease_s=60.0
    )


def failing(api: Managed, number: int, error: Exception) -> Callable[..., Any]:
    """From now on, the commit of this number of this task's fails; an uncertain one is done."""
    left, commits, mine = number, api.world.commits, asyncio.current_task()

    async def commit(fn: Any, early: Any = None) -> Any:
        nonlocal left
        left -= asyncio.current_task() is mine
        if left == 0:
            left = -1
            if isinstance(error, UncertainCommit):
                await type(commits).commit(commits, fn, early)
                commits.uncertain_commit.set()
            raise error
        return await type(commits).commit(commits, fn, early)

    return commit
