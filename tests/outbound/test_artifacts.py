"""Control's object store: the same tests for the real one and the one in memory, then each alone."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from stoker.control.errors import ControlError, NotFound, Unavailable
from stoker.control.http.health.checks import checks_of
from stoker.control.jobs.artifacts import Artifacts, S3Artifacts, as_control_error
from stoker.control.store.database.commits import Committer
from stoker.outbound.errors import (
    FileChanged,
    LocalS3Failed,
    ObjectMissing,
    ObjectStoreDown,
    ObjectStoreFull,
    ObjectStoreRefused,
    OutboundError,
)
from stoker.outbound.s3 import client
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.local_server import LocalS3
from stoker.outbound.s3.objects import ObjectStore
from stoker.testing.fake_objects import FakeObjects
from stoker.testing.memory_artifacts import MemoryArtifacts
from stoker.wire.messages import Grant

SOURCE = Path(__file__).resolve().parents[2] / "src"


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


def configured(config: ObjectStoreConfig, **other: Any) -> ObjectStoreConfig:
    """Returns the settings of this store as `[s3]` and the environment have them: without its folder."""
    return dataclasses.replace(config, folder="", **other)


async def test_the_bucket_is_made_at_the_start(config: ObjectStoreConfig) -> None:
    artifacts = S3Artifacts(configured(config, bucket=f"{config.bucket}-new"))
    await artifacts.start()
    await artifacts.start()
    assert await artifacts.get(await artifacts.put_bytes("e/a", b"x")) == b"x"
    await artifacts.close()


async def test_a_store_that_is_down_is_reported_at_the_start_and_is_503_later(
    config: ObjectStoreConfig,
) -> None:
    artifacts = S3Artifacts(configured(config, endpoint_url="http://127.0.0.1:1"))
    with pytest.raises(ObjectStoreDown):
        await artifacts.start()
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        await artifacts.put_bytes("e/a", b"x")
    assert caught.value.retry_after > 0
    await artifacts.close()


async def test_a_configured_store_that_refuses_the_credentials_is_refused_at_the_start(
    config: ObjectStoreConfig,
) -> None:
    artifacts = S3Artifacts(configured(config, access_secret="another"))
    with pytest.raises(ObjectStoreRefused, match="check access id, secret, and rights on"):
        await artifacts.start()
    await artifacts.close()


def beside(tmp_path: Path, **other: Any) -> ObjectStoreConfig:
    """Returns an embedded store in this folder whose server does not answer."""
    config = ObjectStoreConfig(
        "http://127.0.0.1:1", "", "", "stoker", "id", "secret", folder=str(tmp_path / "objects")
    )
    return dataclasses.replace(config, **other)


async def test_the_embedded_store_is_proved_in_its_folder_without_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "open_client", None)
    artifacts = S3Artifacts(beside(tmp_path, reserve_bytes=0))
    await artifacts.start()
    await artifacts.start()
    assert list((tmp_path / "objects").rglob("*")) == [tmp_path / "objects/stoker"]
    await artifacts.close()


async def test_an_embedded_store_on_a_full_disk_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifacts = S3Artifacts(beside(tmp_path, reserve_bytes=1 << 60))
    await artifacts.start()
    (line,) = caplog.messages
    assert line.startswith(f"the disk under {tmp_path}/objects is full: ")
    assert line.endswith(" must stay free; inputs over 1 MB are refused until there is room")
    await artifacts.close()


async def test_an_embedded_store_without_a_folder_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file")
    artifacts = S3Artifacts(beside(tmp_path))
    with pytest.raises(LocalS3Failed, match=r"folder .*/objects/stoker cannot be made: File exists"):
        await artifacts.start()
    await artifacts.close()


FIRST_FILES = """
import asyncio, sys, threading
from stoker.control.jobs.artifacts import S3Artifacts
from stoker.outbound.s3.local_server import LocalS3
from stoker.wire.messages import Wanted

threads = []

def note(event, named):
    if event == "import" and named[0].partition(".")[0] in ("botocore", "urllib3"):
        threads.append(threading.current_thread().name)

async def main():
    sys.addaudithook(note)
    async with LocalS3(sys.argv[1], reserve_bytes=0) as s3:
        artifacts = S3Artifacts(s3.config)
        await artifacts.start()
        assert not threads
        wanted = [Wanted("link", "e/a"), Wanted("read", "e/b")]
        files = (artifacts.put_bytes(key, b"x") for key in ("e/a", "e/b"))
        await asyncio.gather(*files, artifacts.sign(wanted))
        assert threads and "MainThread" not in threads, threads
        from stoker.outbound.s3 import client
        print(client._session.cache_info().misses, len(artifacts._store.connections.open_styles))
        await artifacts.close()

asyncio.run(main())
"""


def test_botocore_comes_with_the_first_files_in_their_threads_and_once(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", FIRST_FILES, str(tmp_path)],
        env={"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout, found.stderr) == ("1 1\n", "")


async def test_the_first_question_of_ready_opens_the_client_beside_the_loop(
    config: ObjectStoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, opening, looked = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    real = client.open_client

    def open_client(*args: Any, **options: Any) -> Any:
        loop.call_soon_threadsafe(opening.set)
        assert looked.wait(30), "the loop did not run meanwhile"
        return real(*args, **options)

    monkeypatch.setattr(client, "open_client", open_client)
    artifacts = S3Artifacts(config)
    await artifacts.start()
    checks = checks_of(cast(Committer, None), artifacts, tmp_path, lambda: None, lambda: datetime.now(UTC))
    asked = asyncio.ensure_future(checks["objectStore"]())
    await opening.wait()
    assert not asked.done()
    looked.set()
    assert await asked == ""
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
