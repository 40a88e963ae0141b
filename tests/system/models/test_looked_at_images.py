"""Several images of a job, by real processes: OpenAI's client and `stoker image` send them to a FLUX.2."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from stoker.models.weights import FOLDER, Entry, Lock, lock_from_folder, write_lock
from tests.conformance.stock_client import Raised, python_client
from tests.models.text_to_image import tiny_families
from tests.system.stack import SOURCE, Stack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

HANDLER = """
from dataclasses import replace
from pathlib import Path

from stoker.models.interface import PipelineNeeds
from stoker.models.registry import pipeline
from stoker.models.text_to_image.handler import TextToImage


class Klein(TextToImage):
    PIPELINE = replace(
        pipeline("flux-2-klein-4b"), needs=PipelineNeeds(), lock=Path(__file__).parents[1] / "our.lock"
    )
"""
CONFIG = """
local_roots = ["pipelines"]

[[endpoints]]
id = "klein"
imageName = "local:pipelines/klein.py:Klein"
workersMin = 1
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder, name = tmp_path_factory.mktemp("klein"), "flux-2-klein-4b"
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "klein.py").write_text(HANDLER)
    tiny_families.build(name, folder / "weights" / name)
    entry = lock_from_folder(Entry(name, FOLDER, "Apache-2.0", ()), folder / "weights" / name)
    write_lock(Lock([entry]), folder / "our.lock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_WEIGHTS_DIR", str(folder / "weights"))
        made = Stack(folder)
        made.config.write_text(CONFIG)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture
def sent(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "cup.png", tmp_path / "table.png"]
    for path, colour in zip(paths, ("navy", "olive"), strict=True):
        Image.new("RGB", (256, 320), colour).save(path)
    return list(map(str, paths))


def test_the_official_client_and_the_terminal_send_several_images(
    stack: Stack, sent: list[str], tmp_path: Path
) -> None:
    given = {"model": "klein", "prompt": "a cup", "size": "256x256", "output_format": "png"}
    given |= {"response_format": "b64_json", "extra_body": {"seed": 7}}
    with python_client("openai_python.py", tmp_path / "client", stack.facts["http"], stack.key) as client:
        at = {"endpoint": "", "key": stack.key, "given": given}
        [both] = client.ask("edit", **at, images=sent)
        [alone] = client.ask("edit", **at, images=sent[:1])
        with pytest.raises(Raised, match="image: the pipeline of klein takes at most 4 images; got 5"):
            client.ask("edit", **at, images=sent[:1] * 5)
    assert both["b64_json"] != alone["b64_json"]
    with Image.open(io.BytesIO(base64.b64decode(both["b64_json"]))) as opened:
        assert opened.size == (256, 256)
    out = tmp_path / "out.png"
    size = ["--width", "256", "--height", "256", "--seed", "7"]
    images = ["--image", sent[0], "--image", sent[1]]
    to = ["--url", stack.facts["http"], "--endpoint", "klein", "-o", str(out)]
    subprocess.run(
        [sys.executable, "-P", "-m", "stoker.cli", "image", "a cup", *images, *size, *to],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "STOKER_API_KEY": stack.key},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert out.read_bytes() == base64.b64decode(both["b64_json"])
