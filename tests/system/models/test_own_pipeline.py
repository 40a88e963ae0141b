"""A pipeline of somebody's own, as docs/swap-a-pipeline.md writes it: served, checked and priced."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from stoker.models.weights import FOLDER, Entry, Lock, lock_from_folder, write_lock
from tests.documentation.command_lines import ROOT
from tests.documentation.pages import Page
from tests.models.text_to_image import tiny_families
from tests.system.stack import Stack, fetched

SMALL = {"prompt": "a lighthouse", "width": 256, "height": 256, "seed": 1}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_the_pages_pipeline_is_served_and_priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipelines").mkdir()
    blocks = {block.title: block.text for block in Page.read(ROOT / "docs" / "swap-a-pipeline.md").blocks()}
    (tmp_path / "pipelines" / "ours.py").write_text(blocks["pipelines/ours.py"])
    tiny_families.build("sdxl", tmp_path / "weights" / "our-sdxl")
    entry = lock_from_folder(Entry("our-sdxl", FOLDER, "MIT", ()), tmp_path / "weights" / "our-sdxl")
    write_lock(Lock([entry]), tmp_path / "our.lock")
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path / "weights"))
    stack = Stack(tmp_path)
    stack.config.write_text(blocks["stoker.toml"])
    try:
        stack.start()
        record = stack.runsync("our-images", SMALL)
        assert record["status"] == "COMPLETED", record
        assert record["output"]["pipeline"] == "our-sdxl"
        image = fetched(record["output"]["image_url"]).raise_for_status().content
        with Image.open(io.BytesIO(image)) as opened:
            assert opened.size == (256, 256)
        streamed = stack.http.get(f"/our-images/stream/{record['id']}").json()["stream"]
        assert [chunk["output"]["preview"]["format"] for chunk in streamed][:1] == ["jpeg"]
        refused = stack.http.post("/our-images/run", json={"input": SMALL | {"width": 1024}})
        assert refused.status_code == 400
        assert "width must be at most 512" in refused.text
        assert json.dumps(record.get("cost", record["output"].get("cost"))) == json.dumps(256 * 256 * 30e-9)
    finally:
        stack.stop()
