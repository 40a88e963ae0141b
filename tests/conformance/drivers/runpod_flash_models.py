"""The response models of runpod-flash, and the client that its `Endpoint(id=...)` is."""

import asyncio
from typing import Any

import conversation

conversation.stay_on_loopback()

from runpod_flash import Endpoint  # noqa: E402
from runpod_flash.core.resources.serverless import JobOutput, ServerlessHealth  # noqa: E402


def job_output(record: dict[str, Any]) -> dict[str, Any]:
    return JobOutput(**record).model_dump()


def health(counted: dict[str, Any]) -> dict[str, Any]:
    found = ServerlessHealth(**counted)
    return {"health": found.model_dump(), "ready": found.is_ready}


def run_and_wait(endpoint: str, given: dict[str, Any]) -> dict[str, Any]:
    async def conversed() -> dict[str, Any]:
        job = await Endpoint(id=endpoint).run(given)
        await job.wait(timeout=60)
        return {"id": job.id, "done": job.done, "output": job.output, "error": job.error}

    return asyncio.run(conversed())


def runsync(endpoint: str, given: dict[str, Any]) -> dict[str, Any]:
    async def conversed() -> dict[str, Any]:
        job = await Endpoint(id=endpoint).runsync(given)
        return {"done": job.done, "output": job.output, "error": job.error}

    return asyncio.run(conversed())


def cancel(endpoint: str, job: str) -> dict[str, Any]:
    async def conversed() -> dict[str, Any]:
        cancelled = await Endpoint(id=endpoint).cancel(job)
        return {"id": cancelled.id, "done": cancelled.done, "status": await cancelled.status()}

    return asyncio.run(conversed())


if __name__ == "__main__":
    conversation.converse(
        {
            "job_output": job_output,
            "health": health,
            "run_and_wait": run_and_wait,
            "runsync": runsync,
            "cancel": cancel,
        }
    )
