"""The agent on a host that its cloud may take back: leaves on the notice, and does not come again."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from stoker.agent.node import Agent
from stoker.cli.errors import CliError

STAYS_S = 900.0
"""How long the process waits for the end of its host. A host that is there after that was not taken."""


def check_cloud(cloud: str | None) -> None:
    """Raises CliError for a cloud whose notices are not known."""
    from stoker.agent.host.reclaim_notices import CLOUDS

    if cloud is not None and cloud not in CLOUDS:
        raise CliError(f"--reclaim-notices must be one of {', '.join(CLOUDS)}, not {cloud!r}")


async def watch_for_reclaim(agent: Agent, cloud: str, address: str | None = None) -> None:
    """Has the agent leave once the cloud's metadata service says that it takes this host back. `address` is
    that service's in tests."""
    from stoker.agent.host.reclaim_watch import ReclaimWatch
    from stoker.outbound.metadata_service import ADDRESS, MetadataService

    service = MetadataService(address or ADDRESS)
    await ReclaimWatch(cloud, agent.settings.name, service.ask, agent.leave, time.time).run()


async def until_taken_back(agent: Agent, stopped: asyncio.Event, within_s: float = STAYS_S) -> None:
    """Waits for a signal where the agent left on a notice. A process that ended would be started again by its
    service manager, and take work again on a host that is about to go."""
    if agent.leaves_because:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await stopped.wait()
