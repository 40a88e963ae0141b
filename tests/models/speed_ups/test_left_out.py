"""What a profile went without is said by the worker, in `/health`, and before the start by `model show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoker.cli.main import main
from stoker.control.rules.nodes.validation import checked
from stoker.models.registry import PIPELINES
from stoker.models.speed_ups import attention, block_compile, profiles
from stoker.models.speed_ups.speed_up import Loaded
from stoker.models.text_to_image.handler import TextToImage
from stoker.wire.messages import WorkerState
from stoker.worker import Device
from stoker.worker.setup.preparation import SERVES_MAX, clean


def test_the_worker_says_what_it_goes_without_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path))
    monkeypatch.setenv("STOKER_PIPELINE", "flux-tiny")
    monkeypatch.setenv("STOKER_PROFILE", "exact+first-block-cache+taylor-seer")
    handler = TextToImage()
    handler.setup(Device())
    assert set(handler.pipeline.speed_ups) == {"prompt-cache", "first-block-cache"}
    assert handler.serves == f"{handler.entry.description}, without taylor-seer (another cache is in use)"


def test_reasons_are_cut_so_that_the_record_takes_them() -> None:
    assert profiles.without({}) == ""
    found = profiles.without({"block-compile": "word " * 99, "attention": "no"})
    assert found.startswith(", without block-compile (word word")
    assert found.endswith("word [...]), attention (no)")
    assert len(found) < 160
    reason = "torch has channels last for images, and this autoencoder has convolutions over frames"
    assert profiles.without({"channels-last": reason}) == f", without channels-last ({reason})"


def test_the_reasons_of_a_whole_profile_reach_control_uncut() -> None:
    about = max((entry.description for entry in PIPELINES.values()), key=len)
    for profile in profiles.PROFILES:
        wanted = [*profiles.names(profile), attention.XFORMERS]
        told = about + profiles.without(dict.fromkeys(wanted, "word " * 99))
        assert len(told) <= SERVES_MAX
        assert clean(told, SERVES_MAX) == told
        state = WorkerState("w", "e", 1, "ready", serves=told)
        assert checked(state).serves == told


@pytest.mark.parametrize("name", profiles.ATTENTION)
def test_a_worker_on_a_gpu_says_that_it_has_no_xformers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "find_spec", lambda name: None)
    monkeypatch.delenv(attention.ENVIRONMENT, raising=False)
    on_gpu, on_cpu = (Loaded(None, None, device, None) for device in ("cuda", "cpu"))
    told = {name: "there is no example to measure it with"}
    missing = {"xformers": "it is not installed; it is in the extra gpu"}
    assert profiles.apply([name], on_gpu).left_out == told | missing
    assert profiles.apply([name], on_cpu).left_out == {}
    monkeypatch.setenv(attention.ENVIRONMENT, "native")
    assert profiles.apply([name], on_gpu).left_out == {}


def test_what_is_missing_is_known_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    for module in (profiles, attention):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.delenv(attention.ENVIRONMENT, raising=False)
    assert block_compile.no_compiler() == "there is no C compiler (cc or gcc or clang)"
    with pytest.raises(SystemExit):
        main(["model", "show", "flux-1-dev", "--json"])
    assert json.loads(capsys.readouterr().out)["left_out_here"] == {
        "xformers": "it is not installed; it is in the extra gpu",
        "block-compile": block_compile.no_compiler(),
    }
    with pytest.raises(SystemExit):
        main(["model", "show", "talk-mini", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["profile"], shown["left_out_here"]) == (None, {}), "it uses no GPU"
    assert list(profiles.lacking("fast")) == ["xformers", "float8-products", "block-compile"]
    monkeypatch.setenv(attention.ENVIRONMENT, "native")
    assert list(profiles.lacking("fast")) == ["float8-products", "block-compile"]
    compiler = tmp_path / "my-cc"
    compiler.touch(0o755)
    monkeypatch.setenv("CC", "my-cc")
    assert block_compile.no_compiler() == ""


def test_no_profile_claims_what_a_worker_cannot_start() -> None:
    """Several GPUs need a process group, which a worker does not have."""
    assert not any("context-parallel" in profiles.names(profile) for profile in profiles.PROFILES)
