"""Control's object store: the same tests for the real one and the one in memory, then each alone."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from stoker.control.errors import ControlError, NotFound, Unavailable
from stoker.control.jobs.artifacts import Artifacts, S3Artifacts, as_control_error
from stoker.outbound.errors import (
    FileChanged,
    ObjectMissing,
    ObjectStoreDown,
    ObjectStoreFull,
    ObjectStoreRefused,
    OutboundError,
)
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.local_server import LocalS3
from stoker.outbound.s3.objects import ObjectStore
from stoker.testing.fake_objects import FakeObjects
from stoker.testing.memory_artifacts import MemoryArtifacts
from stoker.wire.messages import Grant


@pytest.fixture(params=["s3", "memory"])
async def artifacts(request: pytest.FixtureRequest, config: ObjectStoreConfig) -> AsyncIterator[Artifacts]:
    opened: Artifacts = S3Artifacts(config) if request.param == "s3" else MemoryArtifacts(config)
    yield opened
    await opened.close()


async def test_a_spilled_payload_comes_back(artifacts: Artifacts) -> None:
    ref = await artifacts.put_bytes("e/j/input.json", b'{"prompt":"x"}')
    assert (ref.key, ref.size) == ("e/j/input.json", 14)
    assert await artifacts.get(ref) == b'{"prompt":"x"}'


async def test_what_is_gone_is_not_found(artifacts: Artifacts) -> None:
    ref = await artifacts.put_bytes("e/j/input.json", b"{}")
    await artifacts.delete(ref.key)
    await artifacts.delete(ref.key)
    with pytest.raises(NotFound):
        await artifacts.get(ref)


async def test_what_was_altered_is_an_error(artifacts: Artifacts) -> None:
    ref = await artifacts.put_bytes("e/j/input.json", b"{}")
    with pytest.raises(ControlError, match="altered"):
        await artifacts.get(structs.replace(ref, sha256="0" * 64))


async def test_the_losers_prefix_goes_and_the_winners_stays(artifacts: Artifacts) -> None:
    lost = [await artifacts.put_bytes(f"e/j/1/{n}-a", b"x") for n in range(2)]
    kept = [await artifacts.put_bytes(key, b"x") for key in ("e/j/2/0-a", "e/j/10/0-a", "e/j/input.json")]
    await artifacts.delete_prefix("e/j/1/")
    await artifacts.delete_prefix("e/j/1/")
    for ref in lost:
        with pytest.raises(NotFound):
            await artifacts.get(ref)
    assert [await artifacts.get(ref) for ref in kept] == [b"x"] * 3


@pytest.mark.slow
async def test_a_prefix_of_more_files_than_one_listing_has_goes_whole(tmp_path: Path) -> None:
    """An attempt may hand over a thousand files and an output; a listing of S3 ends at a thousand.

    On a server of its own: rclone prints a line for each, and that one's loop reads them.
    """
    async with LocalS3(tmp_path, reserve_bytes=0) as s3:
        artifacts = S3Artifacts(s3.config, threads=4)
        await asyncio.gather(*(artifacts.put_bytes(f"e/j/1/{n}-a", b"x") for n in range(1001)))
        kept = await artifacts.put_bytes("e/j/2/0-a", b"x")
        await artifacts.delete_prefix("e/j/1/")
        with ObjectStore(s3.config) as store:
            assert store.keys("e/j/") == [kept.key]
        await artifacts.close()


@pytest.mark.parametrize("prefix", ["", "/", "e/j/1"])
async def test_a_prefix_that_is_none_is_not_deleted(artifacts: Artifacts, prefix: str) -> None:
    with pytest.raises(ValueError, match="must end in /"):
        await artifacts.delete_prefix(prefix)


async def test_a_grant_names_one_prefix_and_holds_no_credentials(
    artifacts: Artifacts, config: ObjectStoreConfig
) -> None:
    grant = structs.replace(artifacts.grant, prefix="e/j/1/")
    where = (config.endpoint_url, config.public_endpoint, config.region, config.bucket)
    assert grant == Grant(*where, "e/j/1/", access_id="", access_secret="")
    assert grant.signed


async def test_the_bucket_is_made_at_the_start(config: ObjectStoreConfig) -> None:
    artifacts = S3Artifacts(dataclasses.replace(config, bucket=f"{config.bucket}-new"))
    await artifacts.start()
    await artifacts.start()
    assert await artifacts.get(await artifacts.put_bytes("e/a", b"x")) == b"x"
    await artifacts.close()


async def test_a_store_that_is_down_is_reported_at_the_start_and_is_503_later(
    config: ObjectStoreConfig,
) -> None:
    artifacts = S3Artifacts(dataclasses.replace(config, endpoint_url="http://127.0.0.1:1"))
    with pytest.raises(ObjectStoreDown):
        await artifacts.start()
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        await artifacts.put_bytes("e/a", b"x")
    assert caught.value.retry_after > 0
    await artifacts.close()


def test_credentials_that_end_early_are_refused_at_the_start(config: ObjectStoreConfig) -> None:
    with pytest.raises(ObjectStoreRefused, match="temporary"):
        S3Artifacts(dataclasses.replace(config, access_id="ASIAEXAMPLE"))


async def test_memory_is_shared_with_an_agents_fake() -> None:
    control = MemoryArtifacts()
    agent = FakeObjects(control.blobs)
    ref = await control.put_bytes("e/j/input.json", b"{}")
    assert await agent.get(structs.replace(control.grant, prefix="e/j/1/"), ref) == b"{}"
    control.down = True
    with pytest.raises(Unavailable):
        await control.get(ref)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ObjectStoreDown("x"), 503),
        (ObjectStoreFull("x"), 503),
        (ObjectStoreRefused("x"), 503),
        (ObjectMissing("x"), 404),
        (FileChanged("x"), 500),
    ],
)
def test_each_error_has_its_status(error: OutboundError, status: int) -> None:
    assert as_control_error(error).status == status
    assert str(as_control_error(error)) == "x"
