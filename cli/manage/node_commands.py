"""`stoker node drain`, which can wait until no worker is left, and with a deadline has jobs yield."""

from __future__ import annotations

import time
from collections.abc import Callable

from stoker.cli.access import open_client
from stoker.cli.consoles import plain_console
from stoker.cli.errors import CliError
from stoker.cli.manage import resource_commands
from stoker.cli.manage.node_text import left_on, number_of
from stoker.cli.manage.resource_commands import Service
from stoker.cli.manage.resource_kinds import KINDS

LOOK_S = 1.0
"""The time between two looks at a node that is being drained."""


def drain(
    service: Service,
    name: str,
    *,
    wait: bool,
    deadline_s: float | None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Drains a node, and with `wait` stays until no worker is left there, saying how many workers and jobs
    are left whenever that changes. With a deadline, the jobs that run there are asked to yield. Raises
    CliError when the deadline passes first; the node stays drained."""
    console, began, said = plain_console(stderr=True), clock(), ""
    with open_client(service.url, service.data_dir) as stoker:
        kind = next(kind for kind in KINDS if kind.command == "node")
        member = resource_commands.resolve_member(stoker.manage.nodes, kind, name)
        node = stoker.manage.nodes.drain(member, jobs_yield=deadline_s is not None)
        while wait and (left := left_on(node)):
            if left != said:
                console.print(f"node {node['name']}: {left} left", soft_wrap=True)
                said = left
            if deadline_s is not None and clock() - began >= deadline_s:
                raise CliError(
                    f"node {node['name']} still has {left} after {deadline_s:g} s; the node is drained, and"
                    f" `stoker node resume {member}` takes it back"
                )
            sleep(LOOK_S)
            node = stoker.manage.nodes.get(member)
    if service.as_json:
        resource_commands.details(service, node)
    elif wait:
        stays = f"; {number_of(node['pods'], 'pod')} stay until they are stopped" if node["pods"] else ""
        console.print(f"node {node['name']} is drained, and no worker is left{stays}", soft_wrap=True)
    else:
        left = left_on(node) or "no worker"
        console.print(f"node {node['name']} takes nothing new; left there: {left}", soft_wrap=True)
