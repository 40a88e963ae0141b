"""What a profile went without is said by the worker, in `/health`, and before the start by `model show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoker.cli.main import main
from stoker.models.speed_ups import block_compile, profiles
from stoker.models.text_to_image.handler import TextToImage
from stoker.worker import Device


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
    assert found.endswith("[...]), attention (no)")
    assert len(found) < 120


def test_what_is_missing_is_known_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(profiles, "find_spec", lambda name: None)
    assert block_compile.no_compiler() == "there is no C compiler (cc or gcc or clang)"
    with pytest.raises(SystemExit):
        main(["model", "show", "flux-1-dev", "--json"])
    assert json.loads(capsys.readouterr().out)["left_out_here"] == {
        "block-compile": block_compile.no_compiler()
    }
    assert list(profiles.lacking("fast")) == ["float8-products", "block-compile"]
    compiler = tmp_path / "my-cc"
    compiler.touch(0o755)
    monkeypatch.setenv("CC", "my-cc")
    assert block_compile.no_compiler() == ""


def test_no_profile_claims_what_a_worker_cannot_start() -> None:
    """Several GPUs need a process group, which a worker does not have."""
    assert not any("context-parallel" in profiles.names(profile) for profile in profiles.PROFILES)
