"""A pipeline of an installed package, as docs/swap-a-pipeline.md writes it, with a lock file of its own:
`stoker up` in an environment of its own serves, checks and prices it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest
from PIL import Image

from stoker.cli.processes.readiness import parse_ready
from stoker.models.weights import FOLDER, Entry, Lock, lock_from_folder, write_lock
from tests.documentation.command_lines import ROOT
from tests.documentation.pages import Page
from tests.models.text_to_image import tiny_families
from tests.system.stack import SOURCE, fetched

SMALL = {"prompt": "a lighthouse", "width": 256, "height": 256, "seed": 1, "num_inference_steps": 2}
FILES = ("pyproject.toml", "our_pipelines/__init__.py")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Of an environment that has what this one has, and the page's package, built and installed by pip."""
    package, home = tmp_path / "package", tmp_path / "environment"
    blocks = {block.title: block.text for block in Page.read(ROOT / "docs" / "swap-a-pipeline.md").blocks()}
    for name in FILES:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(blocks[name])
    tiny_families.build("sdxl", tmp_path / "weights" / "our-sdxl")
    entry = lock_from_folder(Entry("our-sdxl", FOLDER, "MIT", ()), tmp_path / "weights" / "our-sdxl")
    write_lock(Lock([entry]), package / "our_pipelines" / "our.lock")
    venv.create(home, with_pip=False, symlinks=True)
    (home / "bin" / "rclone").symlink_to(Path(sys.executable).with_name("rclone"))
    (site,) = home.glob("lib/python*/site-packages")
    (site / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(site), str(package)], check=True)
    return home / "bin" / "python"


@pytest.fixture
def up(tmp_path: Path, python: Path) -> Iterator[str]:
    """The address of `stoker up` as the page starts it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    environment |= {
        "PYTHONPATH": str(SOURCE),
        "STOKER_WEIGHTS_DIR": "weights",
        "STOKER_PIPELINE": "our-sketches",
    }
    read, write = os.pipe()
    command = [str(python), "-P", "-m", "stoker.cli", "up", "--hosted", "text-to-image", "--port", "0"]
    with open(tmp_path / "said", "wb") as said:
        process = subprocess.Popen(
            [*command, "--ready-fd", str(write)],
            env=environment,
            cwd=tmp_path,
            pass_fds=[write],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    os.close(write)
    with open(read, "rb") as pipe:
        facts = parse_ready(pipe.readline())
    if facts is None:
        process.wait()
        raise AssertionError((tmp_path / "said").read_text())
    yield facts["http"]
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0, (tmp_path / "said").read_text()
    assert psutil.wait_procs(started, timeout=30)[1] == []


@pytest.mark.slow
def test_an_installed_package_is_served_checked_and_priced(tmp_path: Path, up: str) -> None:
    key = (tmp_path / ".stoker" / "api_key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(
        base_url=f"{up}/v2/text-to-image", headers=headers, timeout=200, trust_env=False
    ) as http:
        made = {}
        for paper in ("", "on grey paper"):
            record = http.post("/runsync?wait=180000", json={"input": SMALL | {"paper": paper}}).json()
            assert record["status"] == "COMPLETED", (record, (tmp_path / "said").read_text())
            assert record["output"]["pipeline"] == "our-sketches"
            assert json.dumps(record["output"]["cost"]) == json.dumps(256 * 256 * 20e-9)
            made[paper] = fetched(record["output"]["image_url"]).raise_for_status().content
        assert len(set(made.values())) == 2, "the input of its own is used"
        with Image.open(io.BytesIO(made[""])) as image:
            assert image.size == (256, 256)
        refused = http.post("/run", json={"input": SMALL | {"paper": 5}})
        assert (refused.status_code, "paper" in refused.text) == (400, True)
        assert "our-sketches (pencil drawings)" in http.get("/health").text
