"""Weights that are read once: verified while they are read, and refused before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from stoker.models import interface
from stoker.models.interface import PipelineEntry
from stoker.models.weights import (
    Entry,
    LockedFile,
    Reading,
    WeightsRefused,
    lock_from_folder,
    reading,
    verify,
)
from stoker.models.weights.tensors import DTYPES
from stoker.models.weights.verification import cache_path

VAE = "vae/diffusion_pytorch_model.safetensors"
INDEX = "model_index.json"


@pytest.fixture(params=["ahead", "tensors"])
def read(request: pytest.FixtureRequest) -> Callable[[Reading], None]:
    """Either way of reading: for files that are mapped, and to a device."""

    def everything(found: Reading) -> None:
        if request.param == "ahead":
            found.ahead()
        else:
            found.tensors(list(found._large), "cpu")

    return everything


@pytest.fixture
def preads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each read of a large file."""
    sizes: list[int] = []
    plain = os.preadv

    def preadv(number: int, buffers: Any, offset: int) -> int:
        sizes.append(plain(number, buffers, offset))
        return sizes[-1]

    monkeypatch.setattr(os, "preadv", preadv)
    return sizes


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


def test_each_byte_is_read_once_and_its_digest_is_kept(
    entry: Entry, folder: Path, read: Callable[[Reading], None], preads: list[int]
) -> None:
    first = Reading(entry, folder)
    read(first)
    done = first.finish()
    large = sum(file.size or 0 for file in entry.files if file.path.endswith(".safetensors"))
    assert (sum(preads), done.size) == (large, large)
    assert done.seconds > 0
    before = cache_path(folder).read_bytes()
    verify(entry, folder)
    assert cache_path(folder).read_bytes() == before, "verify found all digests"


def test_known_digests_are_not_hashed_again(
    entry: Entry, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify(entry, folder)
    monkeypatch.delattr(reading.hashlib, "sha256")
    for device in ("", "cpu"):
        found = Reading(entry, folder)
        if device:
            found.tensors([VAE], device)
        found.finish()


def test_an_altered_file_is_refused_at_the_end_and_remembered(
    entry: Entry, folder: Path, read: Callable[[Reading], None]
) -> None:
    alter(folder / VAE)
    for _ in range(2):
        found = Reading(entry, folder)
        read(found)
        with pytest.raises(WeightsRefused, match=f"{VAE}: its sha256 is"):
            found.finish()


def test_small_files_are_refused_before_anything_is_built(entry: Entry, folder: Path) -> None:
    alter(folder / INDEX)
    with pytest.raises(WeightsRefused, match=f"{INDEX}: its sha256 is"):
        Reading(entry, folder)
    with pytest.raises(WeightsRefused, match="there is no such folder"):
        Reading(entry, folder / "nowhere")


def test_an_unlocked_digest_is_refused(entry: Entry, folder: Path) -> None:
    files = tuple(replace(file, size=None, sha256=None) if file.path == VAE else file for file in entry.files)
    with pytest.raises(WeightsRefused, match="its digest is unknown"):
        Reading(replace(entry, files=files), folder)


def test_a_file_that_changes_meanwhile_is_refused(
    entry: Entry, folder: Path, read: Callable[[Reading], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.preadv

    def preadv(number: int, buffers: Any, offset: int) -> int:
        os.utime(number, ns=(1, 1))
        return plain(number, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    found = Reading(entry, folder)
    read(found)
    with pytest.raises(WeightsRefused, match=r"its sha256 is changing… where"):
        found.finish()


def test_what_was_built_of_altered_weights_is_not_handed_out(entry: Entry, folder: Path) -> None:
    built: list[Path] = []

    def builds(folder: Path, device: str, *, reading: Reading) -> None:
        built.append(folder)

    pipeline = PipelineEntry("ours", "text-to-image", "flux-tiny", load=builds)
    interface.load(pipeline, folder, "cpu", reading=Reading(entry, folder))
    alter(folder / VAE)
    with pytest.raises(WeightsRefused):
        interface.load(pipeline, folder, "cpu", reading=Reading(entry, folder))
    assert built == [folder, folder]


def test_who_knows_nothing_of_the_reading_gets_only_verified_weights(entry: Entry, folder: Path) -> None:
    """It may compute with them at once."""
    built: list[Path] = []

    def builds(folder: Path, device: str) -> None:
        built.append(folder)

    pipeline = PipelineEntry("ours", "text-to-image", "flux-tiny", load=builds)
    interface.load(pipeline, folder, "cpu", reading=Reading(entry, folder))
    alter(folder / VAE)
    with pytest.raises(WeightsRefused):
        interface.load(pipeline, folder, "cpu", reading=Reading(entry, folder))
    assert built == [folder]


def test_altered_weights_are_the_reason_where_nothing_could_be_built(entry: Entry, folder: Path) -> None:
    def fails(folder: Path, device: str) -> None:
        raise RuntimeError("a shape is wrong")

    pipeline = PipelineEntry("ours", "text-to-image", "flux-tiny", load=fails)
    with pytest.raises(RuntimeError, match="a shape is wrong"):
        interface.load(pipeline, folder, "cpu", reading=Reading(entry, folder))
    alter(folder / VAE)
    with pytest.raises(WeightsRefused):
        interface.load(pipeline, folder, "cpu", reading=Reading(entry, folder))


SHAPES = st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.lists(st.sampled_from(sorted(DTYPES)), min_size=6, max_size=6), st.booleans())
def test_tensors_are_those_of_the_library(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[list[int]], dtypes: list[str], known: bool
) -> None:
    """Whatever their sizes, whole or cut by blocks and segments, with a digest to take or without."""
    folder = tmp_path_factory.mktemp("drawn")
    wanted = {
        f"t{number}": torch.randint(0, 100, shape).to(DTYPES[dtype])
        for number, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=False))
    }
    save_file(wanted, folder / "a.safetensors")
    entry = lock_from_folder(Entry("drawn", "folder", "mine", (LockedFile("a.safetensors"),)), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", 16)
        patch.setattr(reading, "SEGMENT", 48)
        if known:
            verify(entry, folder)
        found = Reading(entry, folder)
        tensors = found.tensors(["a.safetensors"], "cpu")["a.safetensors"]
        found.finish()
    library = load_file(folder / "a.safetensors")
    assert tensors.keys() == library.keys()
    for name, tensor in library.items():
        assert (tensors[name].dtype, tensors[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(tensors[name].flatten().view(torch.uint8), tensor.flatten().view(torch.uint8))


def test_a_damaged_header_is_an_error(entry: Entry, folder: Path) -> None:
    torch_bytes = (folder / VAE).read_bytes()
    (folder / VAE).write_bytes(torch_bytes.replace(b'"F32"', b'"F64"', 1))
    found = Reading(entry, folder)
    with pytest.raises(ValueError, match="is damaged"):
        found.tensors([VAE], "cpu")
    with pytest.raises(WeightsRefused):
        found.finish()
