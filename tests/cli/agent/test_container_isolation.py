"""The settings of containers' networks and users, and what the node's record says of them."""

from __future__ import annotations

import pytest

from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.plan import EngineFacts
from stoker.cli.agent.containers import container_isolation
from stoker.cli.agent.worker_users import FIRST_AUTO
from stoker.cli.errors import CliError

NOT_ROOT = {"root": False, "enters": True}


def test_a_bridge_where_the_agent_can_enter_and_else_the_nodes_network_with_the_reason() -> None:
    decided = container_isolation({}, WorkerUsers(), "node", root=False, enters=True)
    assert (decided.network, decided.facts["containers_network"]) == ("bridge", "bridge")
    decided = container_isolation({}, WorkerUsers(), "node", root=False, enters=False)
    assert decided.network == "host"
    assert decided.facts["containers_network"].startswith("host: the agent lacks the right CAP_SYS_ADMIN")


def test_what_the_operator_says_is_taken_or_refused() -> None:
    decided = container_isolation({"STOKER_CONTAINER_NETWORK": "host"}, WorkerUsers(), "node", **NOT_ROOT)
    assert (decided.network, decided.facts["containers_network"]) == (
        "host",
        "host: STOKER_CONTAINER_NETWORK says so",
    )
    for variables, enters, why in (
        ({"STOKER_CONTAINER_NETWORK": "bridge"}, False, "=bridge: the agent lacks the right"),
        ({"STOKER_CONTAINER_NETWORK": "none"}, True, "must be bridge or host; got 'none'"),
        ({"STOKER_CONTAINER_USER": "root"}, True, "STOKER_CONTAINER_USER must be own or image; got 'root'"),
    ):
        with pytest.raises(CliError, match=why):
            container_isolation(variables, WorkerUsers(), "node", root=False, enters=enters)


def test_workers_users_are_those_of_containers_too() -> None:
    users = WorkerUsers(between=(5000, 5001))
    decided = container_isolation({}, users, "node", root=True, enters=True)
    assert (decided.users, decided.facts["containers_user"]) == (users, "own")
    decided = container_isolation({"STOKER_CONTAINER_USER": "image"}, users, "node", root=True, enters=True)
    assert (decided.users.take("w"), decided.facts["containers_user"]) == (None, "the image's")
    decided = container_isolation({}, WorkerUsers(), "node", **NOT_ROOT)
    assert decided.users.take("w") is None, "a rootless engine has no other users"


def test_an_agent_of_root_finds_users_for_containers_alone() -> None:
    plain = WorkerUsers()
    decided = container_isolation({}, plain, "node", root=True, enters=True)
    user = decided.users.take("w")
    assert user is not None
    assert user[0] >= FIRST_AUTO
    assert plain.take("w") is None


@pytest.mark.parametrize(
    ("variables", "enters", "engine", "warns"),
    [
        ({}, False, "docker", True),
        ({}, False, "", False),
        ({}, True, "docker", False),
        ({"STOKER_CONTAINER_NETWORK": "host"}, False, "docker", False),
    ],
)
def test_the_hosts_network_that_nobody_asked_for_is_warned_of(
    caplog: pytest.LogCaptureFixture, variables: dict[str, str], enters: bool, engine: str, warns: bool
) -> None:
    decided = container_isolation(variables, WorkerUsers(), "node", root=False, enters=enters)
    decided.warn(ContainerEngine(None, EngineFacts(name=engine)))
    assert ("share this host's network" in caplog.text) == warns
    assert ("STOKER_CONTAINER_NETWORK=host" in caplog.text) == warns
