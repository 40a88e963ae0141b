"""Outputs of two replays: the first difference, and images by their pixels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from stoker.cli.errors import CliError
from stoker.cli.replay.outputs import first_difference


def folder(at: Path, name: str, output: Any, files: dict[str, bytes] | None = None) -> Path:
    made = at / name
    made.mkdir()
    (made / "output.json").write_text(json.dumps(output))
    for file, body in (files or {}).items():
        (made / file).write_bytes(body)
    return made


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, ""),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "output.a[1].b is 2 in"),
        ({"a": 1}, {"a": 1, "c": 2}, "output.c is in"),
        ([1], [1, 2], "output is [1] in"),
        (1, 1.0, "output is 1 in"),
        (True, 1, "output is true in"),
    ],
)
def test_the_first_difference_is_named(tmp_path: Path, one: Any, other: Any, where: str) -> None:
    found = first_difference(folder(tmp_path, "one", one), folder(tmp_path, "other", other))
    assert found.startswith(where)
    assert bool(found) is bool(where)


def test_files_are_compared_by_their_bytes(tmp_path: Path) -> None:
    output = {"text": {"$file": "a.txt"}}
    one = folder(tmp_path, "one", output, {"a.txt": b"lighthouse"})
    assert not first_difference(one, folder(tmp_path, "same", output, {"a.txt": b"lighthouse"}))
    found = first_difference(one, folder(tmp_path, "other", output, {"a.txt": b"lightHouse"}))
    assert found.endswith("differ at byte 5")


def test_images_are_compared_by_their_pixels(tmp_path: Path) -> None:
    output = {"image": {"$file": "a.png"}}
    folders = [folder(tmp_path, name, output) for name in ("one", "packed", "other")]
    image = Image.new("RGB", (4, 3), "white")
    image.save(folders[0] / "a.png", compress_level=0)
    image.save(folders[1] / "a.png", compress_level=9)
    image.putpixel((2, 1), (255, 255, 254))
    image.save(folders[2] / "a.png")
    assert not first_difference(folders[0], folders[1])
    assert first_difference(folders[0], folders[2]).endswith("differ first at pixel 2, 1")


def test_a_folder_without_an_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"has no output\.json"):
        first_difference(tmp_path, tmp_path)
