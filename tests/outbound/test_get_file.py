"""Objects into files."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.outbound.errors import ObjectMissing
from stoker.outbound.s3.objects import ObjectStore


def test_an_object_of_several_chunks_arrives_whole(store: ObjectStore, tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    store.put_bytes("w/model.safetensors", data, "application/octet-stream")
    store.get_file("w/model.safetensors", tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == data


def test_one_that_is_not_there_leaves_no_file(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing):
        store.get_file("w/never", tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
