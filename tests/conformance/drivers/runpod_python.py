"""The stock Python SDK, used as its users use it: `runpod.Endpoint` and its asyncio twin."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import conversation

conversation.stay_on_loopback()

import aiohttp  # noqa: E402
import runpod  # noqa: E402
from runpod.endpoint import Job  # noqa: E402

PATIENCE_S = 60


def run(endpoint: str, key: str, given: dict[str, Any]) -> str:
    return runpod.Endpoint(endpoint, api_key=key).run({"input": given}).job_id


def run_to_end(endpoint: str, key: str, given: dict[str, Any]) -> dict[str, Any]:
    job = runpod.Endpoint(endpoint, api_key=key).run({"input": given})
    output = job.output(timeout=PATIENCE_S)
    return {"id": job.job_id, "status": job.status(), "output": output, "again": job.output()}


def run_sync(endpoint: str, key: str, given: dict[str, Any]) -> Any:
    return runpod.Endpoint(endpoint, api_key=key).run_sync({"input": given}, timeout=PATIENCE_S)


def status(endpoint: str, key: str, job: str) -> str:
    return _job(endpoint, key, job).status()


def stream(endpoint: str, key: str, job: str) -> dict[str, Any]:
    found = _job(endpoint, key, job)
    return {"chunks": list(found.stream()), "status": found.status()}


def cancel(endpoint: str, key: str, job: str) -> dict[str, Any]:
    found = _job(endpoint, key, job)
    return {"told": found.cancel(timeout=PATIENCE_S), "status": found.status(), "output": found.output()}


def health(endpoint: str, key: str) -> Any:
    return runpod.Endpoint(endpoint, api_key=key).health(timeout=PATIENCE_S)


def purge_queue(endpoint: str, key: str) -> Any:
    return runpod.Endpoint(endpoint, api_key=key).purge_queue(timeout=PATIENCE_S)


def manage(key: str, function: str, given: dict[str, Any]) -> Any:
    """One of the SDK's functions for pods, endpoints and templates."""
    runpod.api_key = key
    return getattr(runpod, function)(**given)


def _job(endpoint: str, key: str, job: str) -> Job:
    return Job(endpoint, job, runpod.Endpoint(endpoint, api_key=key).rp_client)


class Asyncio:
    """The asyncio client. Every scenario has a session of its own, as in the SDK's README."""

    def __init__(self, endpoint: str, key: str, session: aiohttp.ClientSession) -> None:
        self.client = runpod.AsyncioEndpoint(endpoint, session, api_key=key)

    async def run_to_end(self, given: dict[str, Any]) -> dict[str, Any]:
        job = await self.client.run(given)
        output = await job.output(timeout=PATIENCE_S)
        return {"id": job.job_id, "status": await job.status(), "output": output}

    async def stream(self, job: str) -> dict[str, Any]:
        found = self._job(job)
        async with asyncio.timeout(PATIENCE_S):
            return {"chunks": [chunk async for chunk in found.stream()], "status": await found.status()}

    async def status(self, job: str) -> Any:
        return await self._job(job).status()

    async def cancel(self, job: str) -> dict[str, Any]:
        found = self._job(job)
        return {"told": await found.cancel(), "status": await found.status()}

    async def health(self) -> Any:
        return await self.client.health()

    async def purge_queue(self) -> Any:
        return await self.client.purge_queue()

    def _job(self, job: str) -> runpod.AsyncioJob:
        return runpod.AsyncioJob(self.client.endpoint_id, job, self.client.session, dict(self.client.headers))


def in_asyncio(method: str, endpoint: str, key: str, **given: Any) -> Any:
    async def conversed() -> Any:
        async with aiohttp.ClientSession() as session:
            asked: Awaitable[Any] = getattr(Asyncio(endpoint, key, session), method)(**given)
            return await asked

    return asyncio.run(conversed())


if __name__ == "__main__":
    conversation.converse(
        {
            "run": run,
            "run_to_end": run_to_end,
            "run_sync": run_sync,
            "status": status,
            "stream": stream,
            "cancel": cancel,
            "health": health,
            "purge_queue": purge_queue,
            "asyncio": in_asyncio,
            "manage": manage,
        }
    )
