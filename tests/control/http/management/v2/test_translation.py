"""Both shapes of a container, and pages of lists: nothing is lost on the way there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.errors import BadRequest, Unprocessable
from stoker.control.http.management.v2.container import (
    OF_ENDPOINT,
    OF_POD,
    changed_mount,
    container_fields,
    container_record,
    in_words_of,
    mount_fields,
    mounts_record,
    split,
)
from stoker.control.http.management.v2.paging import page

words = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
names = st.lists(st.text(min_size=1), unique=True)


@given(words)
def test_a_command_comes_back_as_it_was(command: list[str]) -> None:
    record = container_record(image="i:1", command=command, disk_gb=1, ports=[], env={}, registry=None)
    assert container_fields({"args": record["args"]}) == {"dockerStartCmd": command}


@pytest.mark.parametrize("args", ["'", 'a "b', "a \\"])
def test_a_text_that_no_shell_reads_is_refused(args: str) -> None:
    with pytest.raises(BadRequest, match="args must be quoted as for a shell: "):
        split(args)


@given(st.integers(10, 1000), st.sampled_from(["/workspace", "/runpod-volume"]))
def test_mounts_come_back_as_they_were(size: int, path: str) -> None:
    persistent = {"persistent": {"size": size, "path": path}}
    fields = mount_fields(persistent)
    assert mounts_record(fields["volumeInGb"], fields["volumeMountPath"]) == persistent
    network = {"network": [{"volumeId": "v1", "path": path}]}
    fields = mount_fields(network)
    assert mounts_record(0, fields["volumeMountPath"], fields["networkVolumeId"]) == network
    assert mounts_record(**{"volume_gb": mount_fields({})["volumeInGb"], "path": path}) == {}


@pytest.mark.parametrize(
    ("had", "wanted", "why"),
    [
        ({}, {"persistent": {"size": 10, "path": "/a"}}, "which is none; got persistent"),
        (
            {"persistent": {"size": 20, "path": "/a"}},
            {"persistent": {"size": 10, "path": "/a"}},
            "from 20; got 10",
        ),
        ({"network": [{"volumeId": "v", "path": "/a"}]}, {"network": []}, "one mount; got 0"),
        (
            {"network": [{"volumeId": "v", "path": "/a"}]},
            {"network": [{"volumeId": "w", "path": "/a"}]},
            "fixed, as v; got w",
        ),
        ({"persistent": {"size": 20, "path": "/a"}}, {}, "which is persistent; got none"),
    ],
)
def test_a_mount_keeps_its_kind_its_volume_and_its_size(had, wanted, why) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadRequest, match=why):
        changed_mount(had, wanted)


def test_a_mount_may_grow_and_move() -> None:
    had = {"persistent": {"size": 20, "path": "/a"}}
    grown = changed_mount(had, {"persistent": {"size": 30, "path": "/b"}})
    assert grown == {"volumeInGb": 30, "volumeMountPath": "/b"}
    network = {"network": [{"volumeId": "v", "path": "/a"}]}
    moved = changed_mount(network, {"network": [{"volumeId": "v", "path": "/b"}]})
    assert moved == {"volumeMountPath": "/b"}


def test_messages_name_the_fields_of_this_shape() -> None:
    message = "gpuTypeIds must hold names out of: NVIDIA A40; got 'imageNames'; imageName is required"
    assert in_words_of(OF_POD, message) == (
        "gpu.id must hold names out of: NVIDIA A40; got 'imageNames'; image is required"
    )
    assert in_words_of(OF_ENDPOINT, "networkVolumeIds may hold one id") == "networkVolumes may hold one id"


@given(names, st.integers(1, 7))
def test_pages_of_any_size_are_the_whole_list(records: list[str], limit: int) -> None:
    read, cursor = [], None
    while True:
        part, cursor = page(records, str, cursor, limit)
        assert len(part) <= limit
        read += part
        if cursor is None:
            break
    assert read == records


def test_a_cursor_of_another_list_is_refused() -> None:
    with pytest.raises(Unprocessable, match="cursor must be the nextCursor"):
        page(["a", "b"], str, "abc", 1)
