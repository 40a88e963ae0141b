"""The agent's process on a host that its cloud takes back: it stays, and takes no work again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.cli.agent.reclaims import check_cloud, until_taken_back
from stoker.cli.errors import CliError


def test_a_cloud_is_one_whose_notices_are_known() -> None:
    for cloud in (None, "aws", "gcp", "azure"):
        check_cloud(cloud)
    with pytest.raises(CliError, match="--reclaim-notices must be one of aws, gcp, azure, not 'moon'"):
        check_cloud("moon")


def test_a_process_that_left_on_a_notice_waits_for_its_signal() -> None:
    async def story() -> None:
        left: Any = SimpleNamespace(leaves_because="aws takes the host back")
        stopped = asyncio.Event()
        waiting = asyncio.create_task(until_taken_back(left, stopped))
        await asyncio.sleep(0)
        assert not waiting.done()
        stopped.set()
        await asyncio.wait_for(waiting, 60)
        await until_taken_back(left, asyncio.Event(), within_s=0.0)  # its host is there still
        stays: Any = SimpleNamespace(leaves_because="")
        await until_taken_back(stays, asyncio.Event())

    asyncio.run(story())
