"""`flux-1-dev` and `flux-1-schnell` from a folder of the hub's shape to an image, by way of the lock.

The folders have the names, the layout and the number formats of the two repositories: a transformer in three
bfloat16 shards and a T5 in two, each with an index, slow and fast tokenizer files, schnell without guidance
and without dynamic shifting. The numbers are those of flux-tiny, so that the image is known beforehand.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoker.models import weights
from stoker.models.interface import ImageParameters
from stoker.models.registry import NoWeights
from stoker.models.text_to_image import metadata, tiny, tiny_weights
from stoker.models.text_to_image.handler import TextToImage
from stoker.models.weights import Entry, Lock, LockedFile, WeightsRefused, lock_from_folder, read_lock, verify
from stoker.worker import Device
from stoker.worker.testing import LocalJob

NAMES = ("flux-1-dev", "flux-1-schnell")
INPUT = {"prompt": "a lighthouse", "width": 256, "height": 256, "num_inference_steps": 2, "seed": 1}
INPUT |= {"image_format": "png"}

RECORDED = ("num_inference_steps", "guidance_scale", "true_cfg_scale", "negative_prompt")

OTHER_FILES = (
    ".gitattributes",
    "LICENSE.md",
    "README.md",
    "ae.safetensors",
    "dev_grid.jpg",
    "flux1-dev.safetensors",
)
"""What the repositories also hold and no pipeline reads."""


def flux_shaped(folder: Path, *, guided: bool) -> None:
    files = tiny.files()
    for old in (
        "transformer/diffusion_pytorch_model.safetensors",
        "text_encoder_2/model.safetensors",
    ):
        del files[old]
    transformer = tiny_weights.transformer()
    if not guided:
        transformer = {name: array for name, array in transformer.items() if "guidance_embedder" not in name}
        files["transformer/config.json"] = changed(files["transformer/config.json"], guidance_embeds=False)
        files["scheduler/scheduler_config.json"] = changed(
            files["scheduler/scheduler_config.json"], shift=1.0, use_dynamic_shifting=False
        )
    files |= sharded("transformer/diffusion_pytorch_model", transformer, 3)
    files |= sharded("text_encoder_2/model", tiny_weights.t5(len(tiny.t5_vocabulary())), 2)
    files |= special_tokens() | {"tokenizer_2/spiece.model": spiece()}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def changed(config: bytes, **values: object) -> bytes:
    return tiny.json_bytes(json.loads(config) | values)


def sharded(stem: str, tensors: Mapping[str, Any], shards: int) -> dict[str, bytes]:
    """In bfloat16, as the repositories hold them: exact for these numbers."""
    import torch
    from safetensors.torch import save

    half = {name: torch.from_numpy(array.copy()).to(torch.bfloat16) for name, array in tensors.items()}
    names = sorted(half)
    files: dict[str, bytes] = {}
    where: dict[str, str] = {}
    for shard in range(shards):
        path = f"{stem}-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: half[name] for name in names[shard::shards]}
        files[path] = save(part, metadata={"format": "pt"})
        where |= dict.fromkeys(part, path.rpartition("/")[2])
    size = sum(2 * tensor.numel() for tensor in half.values())
    return files | {
        f"{stem}.safetensors.index.json": tiny.json_bytes(
            {"metadata": {"total_size": size}, "weight_map": where}
        )
    }


def special_tokens() -> dict[str, bytes]:
    clip = {"bos_token": tiny.CLIP_START, "eos_token": tiny.CLIP_END, "unk_token": tiny.CLIP_END}
    return {
        "tokenizer/special_tokens_map.json": tiny.json_bytes(clip | {"pad_token": tiny.CLIP_END}),
        "tokenizer_2/special_tokens_map.json": tiny.json_bytes(
            {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        ),
    }


def spiece() -> bytes:
    """A SentencePiece model, which lies beside the fast tokenizer that is read in its stead."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a lighthouse on a cliff", "the sea at night"]),
        model_writer=model,
        vocab_size=24,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    return model.getvalue()


def add_other_files(folder: Path) -> None:
    for name in OTHER_FILES:
        (folder / name).write_bytes(tiny.safetensors_bytes({}) if name.endswith("tensors") else b"beside")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """STOKER_WEIGHTS_DIR with both folders, and beside it the lock that was filled from them."""
    home = tmp_path_factory.mktemp("hub")
    lock = read_lock()
    for name in NAMES:
        flux_shaped(home / name, guided=name == "flux-1-dev")
        lock = lock.with_entry(lock_from_folder(lock.entry(name), home / name))
    weights.write_lock(lock, home / "weights.lock")
    return home


@pytest.fixture(scope="module")
def loaded(home: Path, model: TextToImage) -> Mapping[str, Loaded]:
    """The handler by the pipeline that was asked for, each set up on the CPU as in a worker."""
    handlers = {}
    with pytest.MonkeyPatch.context() as patch:
        as_installed(patch, home, home / "weights.lock")
        for requested in (*NAMES, ""):
            patch.setenv("STOKER_PIPELINE", requested)
            handler, message = TextToImage(), list[str]()
            patch.setattr(
                "stoker.models.selection.log.warning", lambda *a, to=message: to.append(a[0] % a[1:])
            )
            handler.setup(Device())
            handlers[requested] = Loaded(handler, message)
    return handlers


@dataclass(frozen=True)
class Loaded:
    handler: TextToImage
    warned: list[str]


def as_installed(patch: pytest.MonkeyPatch, home: Path, lock: Path) -> None:
    """What a worker finds: the weights' folder, and a lock as that of the installation."""
    patch.setenv("STOKER_WEIGHTS_DIR", str(home))
    patch.setattr("stoker.models.weights.lock.lock_path", lambda: lock)


def painted(handler: TextToImage, **overrides: object) -> LocalJob:
    job = LocalJob(handler.run, INPUT | overrides).run()
    assert job.error is None
    return job


def pixels(job: LocalJob) -> bytes:
    with Image.open(job.files[0].path) as image:
        return image.tobytes()


@pytest.mark.parametrize("name", NAMES)
class TestEntry:
    def test_from_a_folder_to_an_image(self, name: str, loaded: Mapping[str, Loaded], home: Path) -> None:
        handler = loaded[name].handler
        job = painted(handler)
        made = metadata.read(job.files[0].path)
        assert made is not None
        assert made["pipeline"] == name
        assert made["weights"] == f"sha256:{read_lock(home / 'weights.lock').entry(name).digest}"
        assert job.metrics == {"output_pixels": 256 * 256}
        assert [value["step"] for value in job.progress] == [1, 2]
        assert pixels(job) == pixels(painted(handler))

    def test_guidance_reaches_dev_and_does_nothing_to_schnell(
        self, name: str, loaded: Mapping[str, Loaded]
    ) -> None:
        handler = loaded[name].handler
        same = pixels(painted(handler)) == pixels(painted(handler, guidance=2.0))
        assert same == (name == "flux-1-schnell")

    def test_what_is_left_out_is_the_pipelines_own(
        self, name: str, loaded: Mapping[str, Loaded], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By what diffusers' pipeline is called with: as the two model pages show it."""
        handler, called = loaded[name].handler, list[dict[str, Any]]()
        call = type(handler.pipeline.pipe).__call__

        @functools.wraps(call)
        def noted(pipe: Any, **overrides: Any) -> Any:
            called.append({key: overrides[key] for key in RECORDED if key in overrides})
            return call(pipe, **(overrides | {"num_inference_steps": 1}))

        monkeypatch.setattr(type(handler.pipeline.pipe), "__call__", noted)
        overrides = {key: value for key, value in INPUT.items() if key != "num_inference_steps"}
        for more in ({}, {"negative_prompt": "rocks"}, {"negative_prompt": "rocks", "guidance": 3.5}):
            assert LocalJob(handler.run, overrides | more).run().error is None
        page = {"num_inference_steps": 28, "guidance_scale": 7.5}
        excluded = {"negative_prompt": "rocks", "true_cfg_scale": 1.5}
        expected = [page, page | excluded, page | excluded | {"guidance_scale": 3.5}]
        if name == "flux-1-schnell":
            expected = [{"num_inference_steps": 4, "guidance_scale": 0.0}] * 3
        assert called == expected

    def test_each_shard_is_read_and_no_number_lost(
        self, name: str, loaded: Mapping[str, Loaded], model: TextToImage
    ) -> None:
        """The parts hold what flux-tiny's do, schnell but for its guidance."""
        import torch

        for part in ("transformer", "text_encoder", "text_encoder_2", "vae"):
            pipes = (loaded[name].handler.pipeline.pipe, model.pipeline.pipe)
            held, known = (getattr(pipe, part).state_dict() for pipe in pipes)
            lacks = set(known) - set(held)
            assert set(held) <= set(known)
            assert all("guidance_embedder" in parameter for parameter in lacks)
            assert bool(lacks) == (name == "flux-1-schnell" and part == "transformer")
            assert all(torch.equal(held[parameter], known[parameter]) for parameter in held)

    def test_requested_by_name_it_runs_on_a_cpu_with_a_warning(
        self, name: str, loaded: Mapping[str, Loaded]
    ) -> None:
        [warning] = loaded[name].warned
        assert warning.startswith(f"the pipeline {name} is made for a GPU, and this worker has none")

    def test_with_unknown_digests_it_refuses_to_load(
        self, name: str, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The lock as it is shipped, filled in by nobody: nothing is loaded, and the remedy is named."""
        entry = read_lock().entry(name)
        unfilled = replace(entry, files=tuple(LockedFile(file.path) for file in entry.files))
        weights.write_lock(Lock([unfilled]), tmp_path / "weights.lock")
        as_installed(monkeypatch, home, tmp_path / "weights.lock")
        monkeypatch.setenv("STOKER_PIPELINE", name)
        monkeypatch.setattr("stoker.models.interface.load", lambda *_: pytest.fail("it was loaded"))
        with pytest.raises(WeightsRefused, match="its digest is unknown") as caught:
            TextToImage().setup(Device("GPU-1", "gpu", "a GPU"))
        assert str(caught.value).endswith(f". Fill the lock with: stoker weights lock {name}")

    def test_a_folder_of_this_shape_has_every_file_of_the_lock(self, name: str, home: Path) -> None:
        files = (path for path in (home / name).rglob("*") if path.is_file())
        here = {path.relative_to(home / name).as_posix() for path in files}
        assert here == {file.path for file in read_lock().entry(name).files}


def test_unasked_what_was_fetched_is_taken(loaded: Mapping[str, Loaded]) -> None:
    assert loaded[""].handler.entry.name == "flux-1-dev"


class TestWhichIsTaken:
    """By a worker with a GPU; how its model is loaded is not looked at."""

    @pytest.fixture
    def taken(self, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], TextToImage]:
        as_installed(monkeypatch, tmp_path, home / "weights.lock")
        monkeypatch.delenv("STOKER_PIPELINE", raising=False)
        monkeypatch.setattr("stoker.models.interface.load", lambda entry, folder, *_, **__: folder)
        monkeypatch.setattr("stoker.models.text_to_image.previews.fit", lambda *_: None)

        def take() -> TextToImage:
            handler = TextToImage()
            handler.setup(Device("GPU-1", "gpu", "a GPU"))
            return handler

        return take

    def test_the_only_one_that_was_fetched(
        self, taken: Callable[[], TextToImage], tmp_path: Path, home: Path
    ) -> None:
        shutil.copytree(home / "flux-1-schnell", tmp_path / "flux-1-schnell")
        handler = taken()
        assert handler.pipeline == tmp_path / "flux-1-schnell"
        assert handler.serves.startswith("flux-1-schnell (FLUX.1-schnell")

    def test_half_of_a_better_one_is_passed_over(
        self, taken: Callable[[], TextToImage], tmp_path: Path, home: Path
    ) -> None:
        for name in NAMES:
            shutil.copytree(home / name, tmp_path / name)
        (tmp_path / "flux-1-dev" / "model_index.json").unlink()
        assert taken().entry.name == "flux-1-schnell"

    def test_without_any_the_start_fails_and_names_the_commands(
        self, taken: Callable[[], TextToImage], tmp_path: Path, home: Path
    ) -> None:
        shutil.copytree(home / "flux-1-dev", tmp_path / "flux-1-dev")
        (tmp_path / "flux-1-dev" / "model_index.json").unlink()
        with pytest.raises(NoWeights) as caught:
            taken()
        message = str(caught.value)
        assert "model_index.json: is missing. Get them with: stoker weights fetch flux-1-dev" in message
        assert "flux-1-schnell: not fetched. Get them with: stoker weights fetch flux-1-schnell" in message
        assert not (tmp_path / "flux-tiny").exists()

    def test_made_up_ones_are_served_if_they_are_requested(
        self,
        taken: Callable[[], TextToImage],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setenv("STOKER_PIPELINE", "flux-tiny")
        handler = taken()
        assert handler.pipeline == tmp_path / "flux-tiny"
        assert "flux-tiny, whose weights are made up" in handler.serves
        assert f"text-to-image runs {handler.serves}" in caplog.text


def test_the_image_of_dev_is_that_of_the_small_pipeline(
    loaded: Mapping[str, Loaded], model: TextToImage
) -> None:
    """With as long a prompt; but for a rounding, since numbers from another file lie otherwise in memory."""
    parameters = ImageParameters("a lighthouse", 256, 256, steps=2, seed=1, guidance=7.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.pipeline, "text_tokens", loaded["flux-1-dev"].handler.pipeline.text_tokens)
        known = model.pipeline.generate(parameters, lambda _: None)
    both = (pixels(painted(loaded["flux-1-dev"].handler)), known.tobytes())
    one, other = (np.frombuffer(data, np.uint8).astype(int) for data in both)
    assert np.abs(one - other).max() <= 1


class TestWhatLiesBeside:
    @pytest.fixture
    def whole(self, tmp_path: Path) -> Path:
        """A whole repository, with the files that the pipeline does not need."""
        flux_shaped(tmp_path / "hub" / "flux-1-dev", guided=True)
        add_other_files(tmp_path / "hub" / "flux-1-dev")
        return tmp_path / "hub" / "flux-1-dev"

    @pytest.fixture
    def locked(self, whole: Path) -> Entry:
        return lock_from_folder(read_lock().entry("flux-1-dev"), whole)

    def test_it_is_not_locked(self, locked: Entry) -> None:
        assert {file.path for file in locked.files}.isdisjoint(OTHER_FILES)
        assert not locked.unknown

    def test_it_is_not_fetched_and_what_is_fetched_verifies(
        self, locked: Entry, whole: Path, tmp_path: Path
    ) -> None:
        folder_of_entry = tmp_path / "here" / "flux-1-dev"

        def bring(_: Entry, file: LockedFile, to: Path) -> str:
            shutil.copyfile(whole / file.path, to)
            return hashlib.sha256(to.read_bytes()).hexdigest()

        weights.fetch(locked, folder_of_entry, bring)
        verify(locked, folder_of_entry)
        assert not any((folder_of_entry / name).exists() for name in OTHER_FILES)

    def test_in_the_folder_itself_each_is_refused_by_name(self, locked: Entry, whole: Path) -> None:
        with pytest.raises(WeightsRefused) as caught:
            verify(locked, whole)
        assert {problem.path for problem in caught.value.problems} == set(OTHER_FILES)

    def test_a_download_restricted_to_the_list_verifies(self, locked: Entry, whole: Path) -> None:
        """As the hub's library leaves it in a folder: with its notes of what it brought."""
        for name in OTHER_FILES:
            (whole / name).unlink()
        notes = whole / ".cache" / "huggingface"
        (notes / "download" / "vae").mkdir(parents=True)
        for note in (".gitignore", "CACHEDIR.TAG", "download/vae/config.json.metadata"):
            (notes / note).write_text("*")
        verify(locked, whole)
        assert lock_from_folder(read_lock().entry("flux-1-dev"), whole) == locked

    def test_a_snapshot_of_the_hubs_cache_verifies(self, locked: Entry, whole: Path, tmp_path: Path) -> None:
        """There each file is a link to a blob, and the model's folder may be a link to the snapshot."""
        snapshot = tmp_path / "cache" / "snapshots" / "3de623f"
        for file in locked.files:
            (snapshot / file.path).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / file.path).symlink_to(whole / file.path)
        folder_of_entry = tmp_path / "here" / "flux-1-dev"
        folder_of_entry.parent.mkdir()
        folder_of_entry.symlink_to(snapshot)
        verify(locked, folder_of_entry)

    def test_metadata_that_is_a_link_elsewhere_is_refused(
        self, locked: Entry, whole: Path, tmp_path: Path
    ) -> None:
        (whole / ".cache").mkdir()
        (whole / ".cache" / "huggingface").symlink_to(tmp_path)
        with pytest.raises(WeightsRefused, match=r"\.cache/huggingface: is not a regular file"):
            verify(locked, whole)
