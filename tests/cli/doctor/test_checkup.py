"""One probe that fails or hangs, beside which all others are still told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.cli.doctor import checkup, probes
from stoker.cli.doctor.checkup import Asked, gather_facts
from stoker.cli.doctor.facts import Gpus


def asked(tmp_path: Path, config: Path | None = None) -> Asked:
    return Asked((), (), tmp_path, config, None, None, None)


@pytest.fixture
def hangs() -> Iterator[threading.Event]:
    goes_on = threading.Event()
    yield goes_on
    goes_on.set()


async def test_a_driver_that_hangs_is_a_finding_and_the_others_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: threading.Event
) -> None:
    monkeypatch.setattr(checkup, "PATIENCE_S", 0.05)
    monkeypatch.setattr(checkup.extras, "has", lambda _: True)
    monkeypatch.setattr(probes, "gpus", lambda: hangs.wait() and Gpus())
    found = await gather_facts(asked(tmp_path))
    assert found.gpus == Gpus(trouble="it did not answer within 0 s")
    assert found.disk is not None


async def test_half_of_the_settings_of_an_object_store_are_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "stoker.toml"
    config.write_text("")
    monkeypatch.setenv("STOKER_S3_BUCKET", "results")
    found = await gather_facts(asked(tmp_path, config))
    assert found.objects is not None
    assert "STOKER_S3_" in found.objects.trouble


async def test_a_data_folder_that_may_not_be_read_has_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("stoker.cli.access.find_key", refuse)
    assert (await gather_facts(asked(tmp_path))).disk is not None
