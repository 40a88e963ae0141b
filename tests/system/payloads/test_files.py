"""A handler's files: a good one becomes a URL that gives its bytes; what it may not hand over is refused."""

from __future__ import annotations

import pytest

from tests.system.stack import Stack, fetched, queue_endpoint, running

REFUSED = ["file_symlink", "file_device", "file_outside", "file_hard_link", "file_directory", "file_pipe"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    endpoints = [queue_endpoint(name.replace("_", "-"), f"files/{name}.py") for name in ["file_ok", *REFUSED]]
    with running(tmp_path_factory.mktemp("files"), *endpoints) as made:
        yield made


def test_a_file_becomes_a_url_that_gives_its_bytes(stack: Stack) -> None:
    record = stack.runsync("file-ok", {"text": "good day"})
    assert record["status"] == "COMPLETED", record
    answer = fetched(record["output"]["greeting"])
    assert answer.content == b"good day"
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_not_be_handed_over_is_refused_with_a_message(stack: Stack, name: str) -> None:
    target = stack.folder / "secret"
    target.write_text("another's")
    record = stack.runsync(name.replace("_", "-"), {"target": str(target)})
    assert record["status"] == "FAILED"
    assert len(record["error"]) > 20
    assert "another's" not in record["error"]
