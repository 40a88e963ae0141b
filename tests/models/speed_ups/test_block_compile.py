"""Compiled blocks: the same picture, nothing compiled once jobs run, and code that is kept and checked."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.models.speed_ups import block_compile, step_caches
from stoker.models.speed_ups.block_compile import settled
from stoker.models.speed_ups.layers import fused_projections
from stoker.models.speed_ups.profiles import SPEED_UPS
from stoker.models.speed_ups.speed_up import NotHere
from tests.models.speed_ups.pictures import loaded, most, picture

SIZES = ((320, 256), (256, 256), (256, 320))


@pytest.fixture
def runs(dynamo: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """torch traces the blocks, and runs what it traced as it is; counts graphs and their runs."""
    counted = {"graphs": 0, "runs": 0}

    def backend(graph: Any, inputs: Any) -> Any:
        counted["graphs"] += 1

        def run(*arguments: Any) -> Any:
            counted["runs"] += 1
            return graph.forward(*arguments)

        return run

    monkeypatch.setattr(block_compile, "BACKEND", backend)
    return counted


def compiled(flux: Any, **more: Any) -> Any:
    """Warmed up for SIZES, as `warm` does it."""
    examples = {
        f"{width}x{height}": functools.partial(picture, flux, width, height, 1) for width, height in SIZES
    }
    found = loaded(flux, examples=examples, **more)
    assert block_compile.block_compile(found) == "2 blocks for 320x256, 256x256, 256x320"
    flux.speed_ups = {"block-compile": ""}
    return found


@pytest.mark.slow
def test_no_job_is_compiled_for_whatever_its_size(
    flux: Any, plain: Any, runs: dict[str, int], tiny_folder: Path
) -> None:
    """Jobs of the warmed sizes run compiled code, the others none; either draws what the plain pipeline
    does."""
    compiled(flux)
    graphs = runs["graphs"]
    for width, height in SIZES * 2:
        before = runs["runs"]
        picture(flux, width, height)
        assert runs["runs"] - before == 4 * 2  # steps and blocks
    for width, height in ((512, 256), (256, 512), (384, 384)):
        before = runs["runs"]
        picture(flux, width, height)
        assert runs["runs"] == before
    assert runs["graphs"] == graphs
    assert most(picture(flux), plain) <= SPEED_UPS["block-compile"].bound


@pytest.mark.slow
def test_it_is_compiled_with_fused_projections_and_under_a_step_cache(
    flux: Any, runs: dict[str, int]
) -> None:
    """Hooks of the cache are around compiled code, not in it."""
    whole = picture(flux, steps=12)
    fused_projections(loaded(flux))
    found = compiled(flux)
    graphs = runs["graphs"]
    step_caches.first_block_cache(found)
    before = runs["runs"]
    first = picture(flux, steps=12)
    assert 0 < runs["runs"] - before < 12 * 2
    assert runs["graphs"] == graphs
    assert most(picture(flux, steps=12), first) == 0
    assert first.std() > 0.5 * whole.std()


def test_a_network_that_cannot_be_compiled_is_as_before(
    flux: Any, plain: Any, dynamo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no compiler\nof C++ is here")

    monkeypatch.setattr(block_compile, "BACKEND", backend)
    with pytest.raises(NotHere, match="no compiler"):
        block_compile.block_compile(loaded(flux, examples={"a": lambda: picture(flux)}))
    assert not any("forward" in module.__dict__ for module in flux.pipe.transformer.modules())
    assert most(picture(flux), plain) == 0


def test_blocks_with_hooks_and_networks_without_blocks_are_left(flux: Any) -> None:
    import torch

    with pytest.raises(NotHere, match="there is no example"):
        block_compile.block_compile(loaded(flux))
    found = loaded(flux, examples={"a": print})
    with pytest.raises(NotHere, match="the repeated blocks of Linear are not known"):
        block_compile._blocks(torch.nn.Linear(1, 1))
    flux.pipe.transformer.enable_layerwise_casting(torch.float8_e4m3fn, torch.float32)
    with pytest.raises(NotHere, match="hooks, which cannot be compiled"):
        block_compile.block_compile(found)


def test_without_compiled_code_nothing_is_set() -> None:
    with settled(compiled=False):
        pass


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What torch is given of kept code. What it makes is scripted."""
    import torch

    given: list[bytes] = []
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"machine code", None))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", lambda data: given.append(data) or True)
    return given


def test_code_is_kept_with_its_digest_and_given_back(tmp_path: Path, kept: list[bytes]) -> None:
    folder = tmp_path / "compiled"
    assert not block_compile.restore(folder, "k")
    block_compile.keep(folder, "k")
    assert sorted(path.name for path in folder.iterdir()) == ["k.code", "k.json"]
    assert folder.stat().st_mode & 0o077 == 0
    assert json.loads((folder / "k.json").read_text())["bytes"] == len(b"machine code")
    assert block_compile.restore(folder, "k")
    assert kept == [b"machine code"]


def longer(folder: Path) -> None:
    (folder / "k.code").write_bytes(b"machine code and more")


def of_all(folder: Path) -> None:
    (folder / "k.code").chmod(0o666)


def in_a_folder_of_all(folder: Path) -> None:
    folder.chmod(0o777)


def without_lock(folder: Path) -> None:
    (folder / "k.json").unlink()


def with_half_a_lock(folder: Path) -> None:
    (folder / "k.json").write_text("{}")


@pytest.mark.parametrize("spoil", [longer, of_all, in_a_folder_of_all, without_lock, with_half_a_lock])
def test_code_that_cannot_be_trusted_is_not_run(
    tmp_path: Path, kept: list[bytes], spoil: Callable[[Path], None]
) -> None:
    folder = tmp_path / "compiled"
    block_compile.keep(folder, "k")
    spoil(folder)
    assert not block_compile.restore(folder, "k")
    assert kept == []


def test_a_folder_that_cannot_be_written_is_a_line_in_the_log(
    tmp_path: Path, kept: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    block_compile.keep(tmp_path / "file", "k")
    assert "the compiled code is not kept" in caplog.text


def test_the_key_is_of_all_that_the_code_depends_on(flux: Any) -> None:
    examples = {"256x256": print}
    key = block_compile.key_of(loaded(flux, examples=examples))
    assert key == block_compile.key_of(loaded(flux, examples=examples))
    assert key != block_compile.key_of(loaded(flux, examples={"320x256": print}))
    fused_projections(loaded(flux))
    assert key != block_compile.key_of(loaded(flux, examples=examples))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, of its compiler
def test_code_compiled_for_this_cpu_draws_the_same_and_is_kept(
    flux: Any, plain: Any, dynamo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's real compiler, and what it keeps."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    found = compiled(flux, cache=tmp_path / "compiled")
    assert most(picture(flux), plain) <= SPEED_UPS["block-compile"].bound
    assert block_compile.restore(tmp_path / "compiled", block_compile.key_of(found))
