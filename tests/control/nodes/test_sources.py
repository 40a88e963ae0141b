"""Which folders control sends to nodes, and to which nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control.nodes.sources import Sources, folder_of
from stoker.control.scheduling.cluster_state import ClusterState, PlacedWorker
from stoker.wire.messages import Source, WorkerSpec
from stoker.wire.source_archive import digest, read, unpack


def spec(handler: str, version: int = 1, **fields: str) -> WorkerSpec:
    return WorkerSpec("w1", "echo", version, handler, **fields)


@pytest.mark.parametrize(
    ("handler", "fields", "folder"),
    [
        ("/srv/handlers/echo.py:handler", {}, "/srv/handlers"),
        ("/srv/chat", {"kind": "http"}, "/srv/chat"),
        ("/srv/chat", {"kind": "protocol"}, "/srv/chat"),
        ("stoker.models.worker:Handler", {}, None),
        ("", {"kind": "http"}, None),
        ("/app/echo.py:handler", {"image": "a/b:1"}, None),
    ],
)
def test_the_folder_of_a_handler(handler: str, fields: dict[str, str], folder: str | None) -> None:
    assert folder_of(spec(handler, **fields)) == (None if folder is None else Path(folder))


def placed(cluster: ClusterState, node: str, wanted: WorkerSpec) -> None:
    about = {"worker": f"{node}-w", "endpoint": wanted.endpoint, "version": wanted.version}
    cluster.add_worker(PlacedWorker(**about, node=node, session=1, state="starting", devices=(), spec=wanted))


async def test_a_version_keeps_its_source_and_only_its_nodes_get_it(tmp_path: Path) -> None:
    handlers, cluster = tmp_path / "handlers", ClusterState()
    handlers.mkdir()
    (handlers / "echo.py").write_text("1")
    (handlers / "mine.toml").write_text("secret")
    sources = Sources(cluster, tmp_path / "archives", {handlers / "mine.toml"})
    first = sources.of(spec(f"{handlers}/echo.py:handler"))
    (handlers / "echo.py").write_text("2")
    assert sources.of(spec(f"{handlers}/echo.py:handler")) == first, "as long as control runs"
    second = sources.of(spec(f"{handlers}/echo.py:handler", version=2))
    assert isinstance(first, Source)
    assert isinstance(second, Source)
    assert first.digest != second.digest == digest(read(handlers, {handlers / "mine.toml"}))

    placed(cluster, "a", spec(f"{handlers}/echo.py:handler"))
    given = await sources.answer("a", first.digest)
    unpack(given.archive, first.digest, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["echo.py"]
    for node, wanted in (("b", first.digest), ("a", second.digest), ("a", "../../etc/passwd")):
        refused = await sources.answer(node, wanted)
        assert refused.archive == b""
        assert refused.refusal.startswith(f"no worker of node {node} has the source")
    (tmp_path / "archives" / first.digest).unlink()
    assert (
        await sources.answer("a", first.digest)
    ).refusal == "control cannot read it: No such file or directory"


def test_what_is_too_large_is_not_sent_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(1 << 30)
    sources = Sources(ClusterState(), tmp_path / "archives")
    found = sources.of(spec(f"{tmp_path}/echo.py:handler"))
    assert found is not None
    assert (found.digest, "over 8 MiB" in found.refusal) == ("", True)
    assert "endpoint echo: its files are not sent to other hosts" in caplog.text


def test_archives_of_an_earlier_control_are_removed(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    Sources(ClusterState(), tmp_path)
    assert not list(tmp_path.iterdir())
    assert Sources(ClusterState(), None).of(spec("/srv/echo.py:handler")) is None
