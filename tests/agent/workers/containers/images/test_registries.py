"""Images that need a password: pulled with the endpoint's, pinned, and what is said when it goes wrong."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.workers.containers import pull
from stoker.wire.messages import RegistryAuth
from tests.agent.workers.containers.images.registry_here import PASSWORD, USER, Registry, registry

pytestmark = pytest.mark.slow

ROBOT = RegistryAuth(USER, PASSWORD)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Registry, str]]:
    with registry(tmp_path) as made:
        yield made


@pytest.fixture
def image(served: tuple[Registry, str], host: Any) -> Iterator[str]:
    name = f"{served[1]}/a/b:1"
    yield name
    client = host.engine.client
    for one in client.images(all=True):
        if any(served[1] in received for received in [*(one["RepoTags"] or ()), *(one["RepoDigests"] or ())]):
            client.remove_image(one["Id"], force=True)


async def test_an_image_behind_a_password(
    host: Any, image: str, served: tuple[Registry, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    worker = host.start(kind="protocol", image=image, registry=ROBOT)
    ended = await worker.exited()
    assert (ended.status, ended.log_tail) == (0, ("pulled",))
    (pin,) = json.loads((host.folder / "images.json").read_text()).values()
    assert pin["digest"].endswith(f"/a/b@{served[0].digest}")
    kept = (host.folder / "images.json").read_text() + caplog.text
    assert PASSWORD not in kept, "neither logged nor kept"


async def test_a_tag_that_moved_is_still_what_it_was_for_this_version(
    host: Any, image: str, served: tuple[Registry, str]
) -> None:
    first = await host.start(kind="protocol", image=image, registry=ROBOT).exited()
    host.engine.client.remove_image(image, force=True)
    served[0].publish(served[0].program.replace(b"pulled", b"moved!"))
    served[0].requests.clear()
    again = await host.start(kind="protocol", image=image, registry=ROBOT).exited()
    assert (first.log_tail, again.log_tail) == (("pulled",), ("pulled",)), (first, again)
    assert any("/blobs/" in path for path in served[0].requests), "it was pulled again"
    newer = await host.start(version=2, kind="protocol", image=image, registry=ROBOT).exited()
    assert newer.log_tail == ("moved!",)


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        (None, "no credentials are named for it (containerRegistryAuthId)"),
        (RegistryAuth(USER, "wrong-one"), "the registry does not take the credentials of robot"),
    ],
)
async def test_whoever_is_not_let_in_reads_why(
    host: Any, image: str, auth: RegistryAuth | None, message: str
) -> None:
    reason = (await host.start(kind="protocol", image=image, registry=auth).exited()).reason
    assert reason.startswith(f"the container of worker w1 cannot be run: image {image} cannot be pulled: ")
    assert reason.endswith(message)
    assert "wrong-one" not in reason


async def test_a_tag_that_there_is_not(host: Any, image: str) -> None:
    worker = host.start(kind="protocol", image=image.removesuffix("1") + "2", registry=ROBOT)
    assert "manifest unknown" in (await worker.exited()).reason


async def test_a_silent_registry(
    host: Any, image: str, served: tuple[Registry, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "QUIET_S", 1.0)
    served[0].hang.set()
    reason = (await host.start(kind="protocol", image=image, registry=ROBOT).exited()).reason
    assert reason.endswith("cannot be pulled: its registry has been silent for 1 s")
    served[0].released.set()
