"""A webhook or a bucket that nothing would ever reach is refused when it is submitted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stoker.control.config.settings import PlaneSettings
from stoker.control.errors import BadRequest
from stoker.control.rules.submissions import S3Config, Submission
from tests.control.plane_world import World, endpoint, story, world

HERE = Submission(b"{}", webhook="http://127.0.0.1:9000/hook?token=hush")
BUCKET = S3Config("id", "secret", "bucket", "http://localhost:9000")
OWN = Submission(b"{}", s3=BUCKET)
METADATA = Submission(b"{}", webhook="http://169.254.169.254/")


async def refused(w: World, submission: Submission) -> str:
    with pytest.raises(BadRequest) as one:
        await w.plane.commands.run_sync(w.echo, submission, 5)
    with pytest.raises(BadRequest) as other:
        await w.plane.commands.submit(w.echo, submission, sync=False)
    assert str(one.value) == str(other.value)
    return str(one.value)


@story
async def test_by_default_no_private_address_is_taken_and_the_option_is_named() -> None:
    async with world(endpoint()) as (w, _):
        allows = "; allow_private_addresses = true in stoker.toml allows it"
        assert await refused(w, HERE) == (
            "webhook: http://127.0.0.1:9000/hook is refused: its host is the loopback address 127.0.0.1"
            + allows
        )
        assert await refused(w, OWN) == (
            "s3Config.endpointUrl: http://localhost:9000 is refused:"
            " its host is the loopback address 127.0.0.1" + allows
        )
        assert (await refused(w, METADATA)).endswith("is the link-local address 169.254.169.254")


@story
async def test_where_the_option_allows_them_they_are_taken() -> None:
    async with world(endpoint(workers_min=1), settings=PlaneSettings(allow_private_addresses=True)) as (
        w,
        tasks,
    ):
        agent = await w.working_agent(tasks)
        await w.plane.commands.submit(w.echo, replace(HERE, s3=BUCKET), sync=False)
        grant = (await agent.assigned()).files_grant
        assert grant is not None
        assert not grant.guarded
        assert "link-local" in await refused(w, METADATA)


@story
async def test_what_a_name_resolves_to_is_left_to_the_guard() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        named = replace(BUCKET, endpoint_url="https://s3.example", region="eu-west-1")
        await w.plane.commands.submit(w.echo, Submission(b"{}", s3=named), sync=False)
        grant = (await agent.assigned()).files_grant
        assert grant is not None
        assert grant.guarded
        assert grant.region == "eu-west-1"
