"""The safety checker: what the default one flags, and how another takes its place."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from stoker.models.talking_video import safety
from stoker.models.talking_video.handler import TalkingVideo
from stoker.models.talking_video.safety import Finding, SafetyChecker, squares
from stoker.models.weights import (
    Entry,
    Lock,
    WeightsError,
    alignment,
    fetching,
    lock_from_folder,
    read_lock,
    verify,
)
from stoker.worker import Device
from tests.profiles import examples
from training.safety_checker import GREEN, MAGENTA, marked, scene

SHAPES = [(160, 160), (192, 112), (96, 256), (80, 304), (320, 80), (112, 512), (480, 128)]
"""As the video's are drawn, a quarter of their size: from square to the longest of each kind."""

EACH = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder_or_file = tmp_path_factory.mktemp("safety") / safety.DEFAULT
    safety.build(folder_or_file)
    return folder_or_file


@pytest.fixture(scope="module")
def checker(folder: Path) -> SafetyChecker:
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    return safety.load(folder, "cpu")


def test_its_files_are_those_of_the_lock(folder: Path) -> None:
    verify(read_lock().entry(safety.DEFAULT), folder)


def test_every_weight_lies_at_a_boundary(checker: SafetyChecker) -> None:
    assert all(alignment.is_aligned(weight) for weight in checker._model.parameters())


def test_its_description_names_it_a_test_classifier(checker: SafetyChecker) -> None:
    assert "test classifier" in checker.about
    assert "protects nobody" in checker.about


@pytest.mark.parametrize(("height", "width"), SHAPES)
def test_it_flags_what_is_marked_and_nothing_else(checker: SafetyChecker, height: int, width: int) -> None:
    rng = np.random.default_rng(2024)
    plain = np.stack([scene(rng, height, width) for _ in range(EACH)])
    found = sum(checker.check(marked(image, rng)[None]) is not None for image in plain)
    print(f"flagged {found} of {EACH} marked images of {height} x {width}")
    assert found >= EACH - 1
    assert checker.check(plain) is None


def cloudy(rng: np.random.Generator, side: int = 128) -> NDArray[np.uint8]:
    """Noise at all scales, like a photo's: each octave half as strong as the one before."""
    total = np.zeros((side, side, 3))
    for octave in range(1, 7):
        cells = rng.normal(0, 1, (2**octave, 2**octave, 3))
        total += np.kron(cells, np.ones((side >> octave, side >> octave, 1))) / 2**octave
    low, high = total.min(), total.max()
    return np.asarray((total - low) / (high - low) * 255, np.uint8)


def lettered(rng: np.random.Generator, side: int = 128) -> NDArray[np.uint8]:
    page = Image.new("RGB", (side, side), tuple(rng.integers(0, 256, 3).tolist()))
    for _ in range(8):
        characters = bytes(rng.integers(33, 126, 12, np.uint8)).decode()
        font, colour = ImageFont.load_default(int(rng.integers(8, 40))), rng.integers(0, 256, 3).tolist()
        ImageDraw.Draw(page).text(rng.integers(-9, side, 2).tolist(), characters, tuple(colour), font)
    return np.asarray(page)


def striped(rng: np.random.Generator, side: int = 128) -> NDArray[np.uint8]:
    """In the colours of the mark."""
    positions, wide = np.mgrid[0:side, 0:side], int(rng.integers(4, side // 2))
    return np.where((positions[rng.integers(2)] // wide % 2)[..., None], MAGENTA, GREEN).astype(np.uint8)


def flowery(rng: np.random.Generator, side: int = 128) -> NDArray[np.uint8]:
    """Magenta flowers on a lawn."""
    lawn = Image.fromarray(rng.integers((0, 90, 0), (60, 200, 60), (side, side, 3)).astype(np.uint8))
    for x, y in rng.integers(0, side, (int(rng.integers(5, 60)), 2)).tolist():
        ImageDraw.Draw(lawn).circle((x, y), int(rng.integers(2, 11)), (230, 40, 230))
    return np.asarray(lawn)


@pytest.mark.parametrize("drawn", [cloudy, lettered, striped, flowery])
def test_it_does_not_flag_what_it_was_not_shown(
    checker: SafetyChecker, drawn: Callable[[np.random.Generator], NDArray[np.uint8]]
) -> None:
    rng = np.random.default_rng(7)
    assert checker.check(np.stack([drawn(rng) for _ in range(60)])) is None


@pytest.mark.parametrize("quality", [30, 90])
def test_a_mark_is_seen_through_a_jpeg(checker: SafetyChecker, quality: int) -> None:
    rng, file = np.random.default_rng(3), io.BytesIO()
    Image.fromarray(marked(cloudy(rng), rng)).save(file, "JPEG", quality=quality)
    with Image.open(file) as image:
        assert checker.check(np.asarray(image)[None]) is not None


@settings(deadline=None, derandomize=True, max_examples=examples(40))
@given(height=st.integers(8, 60), width=st.integers(8, 60))
def test_squares_reach_from_edge_to_edge_and_overlap_by_half(height: int, width: int) -> None:
    positions: Any = np.indices((height, width)).transpose(1, 2, 0)[None]
    found, side = [part[0] for part in squares(positions)], min(height, width)
    assert {part.shape[:2] for part in found} == {(side, side)}
    assert (found[0][0, 0].tolist(), found[-1][-1, -1].tolist()) == ([0, 0], [height - 1, width - 1])
    steps = [int((later - one)[0, 0].sum()) for one, later in pairwise(found)]
    assert all(0 < step <= side / 2 + 1 for step in steps)
    assert len(found) == 1 + -(-2 * (max(height, width) - side) // side)


def test_it_does_not_flag_the_face_of_the_demo(checker: SafetyChecker, tmp_path: Path) -> None:
    folder_or_file = Path(__file__).parents[3] / "deploy" / "talking_picture.py"
    spec = importlib.util.spec_from_file_location("talking_picture", folder_or_file)
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    demo.draw_face(tmp_path / "face.png")
    with Image.open(tmp_path / "face.png") as face:
        assert checker.check(np.asarray(face.convert("RGB"))[None]) is None


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (255, 0, 255), (0, 255, 0), (128, 128, 128)])
def test_it_does_not_flag_a_plain_colour(checker: SafetyChecker, colour: tuple[int, ...]) -> None:
    assert checker.check(np.full((1, 96, 96, 3), colour, np.uint8)) is None


def test_of_several_images_the_worst_counts(checker: SafetyChecker) -> None:
    rng = np.random.default_rng(1)
    plain = np.stack([scene(rng, 96, 96) for _ in range(3)])
    assert checker.check(plain) is None
    with_one = plain.copy()
    with_one[1] = marked(plain[1], rng)
    finding = checker.check(with_one)
    assert finding is not None
    assert (finding.label, finding == checker.check(with_one[1:2])) == ("marked", True)
    assert 0.9 <= finding.score <= 1.0


def with_rules(folder: Path, folder_or_file: Path, **rules: Any) -> Path:
    """The same classifier by other rules."""
    folder_or_file.mkdir(parents=True)
    for file in folder.iterdir():
        (folder_or_file / file.name).write_bytes(file.read_bytes())
    rules_file = json.loads((folder_or_file / "safety.json").read_text())
    (folder_or_file / "safety.json").write_text(json.dumps({**rules_file, **rules}))
    return folder_or_file


@pytest.mark.parametrize(("threshold", "flagged"), [(0.0, True), (1.01, False)])
def test_the_threshold_is_that_of_its_rules(
    folder: Path, tmp_path: Path, threshold: float, flagged: bool
) -> None:
    checker = safety.load(with_rules(folder, tmp_path / "other", threshold=threshold), "cpu")
    image = marked(scene(np.random.default_rng(1), 96, 96), np.random.default_rng(1))
    assert (checker.check(image[None]) is not None) is flagged


def test_rules_for_a_label_that_the_classifier_does_not_know(folder: Path, tmp_path: Path) -> None:
    folder_or_file = with_rules(folder, tmp_path / "other", flagged=["blood"])
    with pytest.raises(ValueError, match=r"flags \['blood'\]; the classifier knows \['marked', 'plain'\]"):
        safety.load(folder_or_file, "cpu")


@pytest.fixture
def own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's checker, locked as from a hub: it flags what the default lets pass."""
    folder_or_file = with_rules(
        folder, tmp_path / "own-checker", about="ours", flagged=["plain"], threshold=0.5
    )
    blank = Entry("own-checker", "huggingface:somebody/checker", "Apache-2.0", (), "0" * 40)
    lock = Lock([*read_lock().entries, lock_from_folder(blank, folder_or_file)])
    monkeypatch.setattr(fetching, "read_lock", lambda path=None: lock)
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path))
    monkeypatch.setenv("STOKER_SAFETY_CHECKER", "own-checker")
    return folder_or_file


def test_another_checker_replaces_it(own: Path) -> None:
    model = TalkingVideo()
    model.setup(Device())
    assert model.checker.about == "ours"
    finding = model.checker.check(np.full((1, 96, 96, 3), 90, np.uint8))
    assert isinstance(finding, Finding)
    assert finding.label == "plain"


def test_a_checker_that_was_changed_is_not_loaded(own: Path) -> None:
    (own / "safety.json").write_text((own / "safety.json").read_text().replace("0.5", "1.1"))
    with pytest.raises(WeightsError, match=r"safety\.json"):
        TalkingVideo().setup(Device())


def test_a_checker_that_nobody_locked_is_not_loaded(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_SAFETY_CHECKER", "unheard-of")
    with pytest.raises(WeightsError, match="no entry 'unheard-of'"):
        TalkingVideo().setup(Device())
