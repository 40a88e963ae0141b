"""What workers still say while the agent itself goes: nobody reads it, and holds up nothing."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from stoker.agent.errors import AgentRefused
from stoker.worker.frames import Frame


def _last_frames(kind: str) -> list[Frame]:
    """Of a job, that would each begin work beside the loop."""
    about = {"job": "j", "attempt": 1}
    if kind == "fetch":
        wish = {"n": 0, "url": "http://inputs/a", "max_bytes": 9, "timeout_s": 9.0}
        return [Frame("fetch", {**about, **wish})]
    if kind == "chunk":
        return [Frame("chunk", {**about, "n": 0}, json.dumps("x" * 3_000_000).encode())]
    fd = os.memfd_create("a.png", os.MFD_CLOEXEC)
    os.write(fd, b"made")
    return [
        Frame("file", {**about, "n": 0, "name": "a.png", "media_type": "image/png"}, fd=fd),
        Frame("done", {**about, "files": 1, "metrics": {}}, b'{"url": {"$file": 0}}'),
    ]


@pytest.mark.parametrize("kind", ["fetch", "chunk", "done"])
def test_a_refused_agent_ends_whatever_its_workers_reported_last(
    in_time, a_host, a_worker, a_job, kind: str
) -> None:
    async def story() -> None:
        host = a_host()
        running = asyncio.create_task(host.agent.run())
        await host.control.ready(a_worker())
        await host.control.assign(a_job("j", b'{"run_s": 1000}'))
        await host.holds_work()
        (process,) = host.spawner.processes
        process.pause()
        for frame in _last_frames(kind):
            process.emit(frame)
        host.control.refusal = "this join token was revoked"
        host.control.stream.end("gone")
        with pytest.raises(AgentRefused, match="revoked"):
            async with asyncio.timeout(60):
                await running
        host.check_clean()

    in_time(story())
