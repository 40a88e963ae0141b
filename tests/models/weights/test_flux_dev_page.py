"""docs/flux-1-dev.md, walked on a hub on loopback: from the licence to a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from stoker.cli.control.hosted import hosted_endpoints
from stoker.cli.main import main
from stoker.models.registry import pipeline
from stoker.models.weights import ENTRIES, read_lock, weights_folder
from stoker.outbound.download import RECEIVED_BYTES
from tests.models.weights.gated_hub import GatedHub, serving
from tests.models.weights.test_hub_entries import flux_shaped

PAGE = Path(__file__).parents[3] / "docs" / "flux-1-dev.md"
REPOSITORY = "black-forest-labs/FLUX.1-dev"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatedHub]:
    flux_shaped(tmp_path / "hub", guided=True)
    made = GatedHub(REPOSITORY, tmp_path / "hub", "hf_mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path / "weights"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serving(made) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield made


@pytest.fixture
def at_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lock = tmp_path / "own.lock"
    monkeypatch.setenv("STOKER_WEIGHTS_LOCK", str(lock))
    return lock


def stoker(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(line.removeprefix("stoker ").split())
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, " ".join((printed.out + printed.err).split())


def commands() -> list[str]:
    """The lines of the page that a shell runs, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_the_page_from_top_to_bottom(
    hub: GatedHub, at_the_lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token, lock, *rest, up = commands()
    assert (token.split("=")[0], lock.split("=")[0]) == ("export HF_TOKEN", "export STOKER_WEIGHTS_LOCK")
    assert up == "STOKER_PIPELINE=flux-1-dev stoker up"
    assert [line.split()[1:3] for line in rest] == [
        ["weights", "lock"],
        ["weights", "fetch"],
        ["weights", "verify"],
        ["model", "run"],
    ]
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    hub.accepted = True
    locking, fetching, verifying, _ = rest
    code, printed = stoker(capsys, locking)
    assert (code, "locked flux-1-dev at 3de623fc" in printed, str(at_the_lock) in printed) == (0, True, True)
    assert [entry.name for entry in read_lock(at_the_lock).entries] == ["flux-1-dev"], "what it filled alone"
    code, printed = stoker(capsys, fetching)
    assert (code, "complete and verified in" in printed) == (0, True), printed
    assert stoker(capsys, verifying)[0] == 0

    small = "--set width=256 --set height=256 --set num_inference_steps=2"
    code, printed = stoker(capsys, f"model run flux-1-dev --prompt lighthouse --out pictures {small}")
    assert code == 0, printed
    (picture,) = [path for path in Path("pictures").rglob("*") if path.is_file()]
    with Image.open(picture) as image:
        assert image.size == (256, 256)

    made = hosted_endpoints(("text-to-image",), {"STOKER_PIPELINE": "flux-1-dev"})[0]
    assert {file.sha256 for file in made.run.weights[0].files} == {
        file.sha256 for file in read_lock().entry("flux-1-dev").files
    }
    monkeypatch.delenv("STOKER_WEIGHTS_LOCK")
    assert read_lock().entry("flux-1-dev").unknown, (
        "a worker on another host has the lock of its installation"
    )
    monkeypatch.setenv(ENTRIES, made.run.env[ENTRIES])
    assert not read_lock().entry("flux-1-dev").unknown

    code, printed = stoker(capsys, "stoker weights remove flux-1-dev")
    assert (code, printed.startswith("removed flux-1-dev: ")) == (0, True), printed
    assert [path.name for path in weights_folder().iterdir() if "lock" not in path.name] == []
    assert stoker(capsys, "weights remove flux-1-dev")[0] == 1


def test_the_page_names_the_memory_that_workers_are_placed_by() -> None:
    needs = pipeline("flux-1-dev").needs
    told = re.findall(r"(\d+) GB(?! with| of memory)|(\d+) GB of memory|(\d+) GB with", pages(PAGE))
    weights, whole, saving = ({found[kind] for found in told if found[kind]} for kind in range(3))
    assert (whole, saving) == ({str(needs.gpu_memory_gb)}, {str(needs.saving_gb)})
    assert weights == {"34"}, "the weights themselves"
    words = f"(`flux-1-dev`: {needs.gpu_memory_gb} GB, or {needs.saving_gb} GB with the profile `low-memory`;"
    assert words in pages(PAGE.with_name("pipelines-and-weights.md"))


def pages(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").split())


def test_each_refusal_says_what_to_do(
    hub: GatedHub, at_the_lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, printed = stoker(capsys, "weights lock flux-1-dev")
    assert (code, "this environment has no HF_TOKEN, and the licence" in printed) == (1, True), printed
    assert f"/{REPOSITORY}" in printed.partition("accepted at ")[2]
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    code, printed = stoker(capsys, "weights lock flux-1-dev")
    assert (code, "HF_TOKEN of this environment may not read it" in printed) == (1, True), printed
    code, printed = stoker(capsys, "weights fetch flux-1-dev")
    assert (code, "Fill the lock with: stoker weights lock flux-1-dev" in printed) == (1, True), printed
    hub.accepted = True
    assert stoker(capsys, "weights lock flux-1-dev")[0] == 0
    hub.accepted = False
    code, printed = stoker(capsys, "weights fetch flux-1-dev")
    assert (code, "is refused (403); HF_TOKEN of this environment may not read it" in printed) == (1, True)
    assert "hf_mine" not in printed
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    code, printed = stoker(capsys, "weights lock flux-1-dev")
    assert (code, f"cannot list {REPOSITORY}" in printed) == (1, True), printed
    monkeypatch.setenv("STOKER_WEIGHTS_LOCK", "/proc/own.lock")
    code, printed = stoker(capsys, f"weights lock flux-1-dev --from {hub.folder}")
    assert (code, "name a lock of your own in STOKER_WEIGHTS_LOCK" in printed) == (1, True), printed


def test_a_fetch_that_broke_off_goes_on_where_it_was(
    hub: GatedHub, at_the_lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    hub.accepted = True
    large = "tokenizer_2/spiece.model"
    with (hub.folder / large).open("ab") as file:
        file.write(bytes(4 * RECEIVED_BYTES))
    assert stoker(capsys, "weights lock flux-1-dev")[0] == 0
    hub.breaks = large
    code, printed = stoker(capsys, "weights fetch flux-1-dev")
    assert (code, "broke off" in printed) == (1, True), printed
    hub.requests.clear()
    assert stoker(capsys, "weights fetch flux-1-dev")[0] == 0
    resumed, *others = hub.requests
    half = (hub.folder / large).stat().st_size // 2
    assert (resumed[0], half - RECEIVED_BYTES < resumed[1] <= half) == (large, True), resumed
    assert all(begins_at == 0 for _, begins_at in others)


def test_a_terminal_shows_bytes_rate_and_remaining_time(
    hub: GatedHub, at_the_lock: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last picture of the bar, where the fetch breaks off, and where it ends."""
    for name, value in {"HF_TOKEN": "hf_mine", "FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    hub.accepted = True
    large = "tokenizer_2/spiece.model"
    with (hub.folder / large).open("ab") as file:
        file.write(bytes(4 * RECEIVED_BYTES))
    assert stoker(capsys, "weights lock flux-1-dev")[0] == 0
    hub.breaks = large
    here, total = last_bar(stoker(capsys, "weights fetch flux-1-dev")[1])
    assert 0 < here < total
    printed = stoker(capsys, "weights fetch flux-1-dev")[1]
    assert last_bar(printed) == (total, total)
    size = read_lock(at_the_lock).entry("flux-1-dev").size or 0
    assert abs(total - size / 1e6) < 0.1


def last_bar(printed: str) -> tuple[float, float]:
    """The megabytes that are there, and that there will be, of a bar with its rate and its remaining time."""
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", printed)
    found = re.findall(r"([\d.]+)/([\d.]+) MB ([\d.]+) (?:bytes|[kMG]B)/s (\d:\d\d:\d\d)", plain)
    assert found, plain
    here, total, _, _ = found[-1]
    return float(here), float(total)
