"""Results of two runs: the first difference, and images and videos by what they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import av
import numpy as np
import pytest
from PIL import Image

from stoker.cli.errors import CliError
from stoker.cli.replay import replay
from stoker.cli.replay.outputs import first_difference, first_difference_from_job
from stoker.cli.replay.pictures import videos_differ
from stoker.cli.replay.results import download_results, write_results
from stoker.cli.replay.verdict import Run
from stoker.client import JobRecord


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
    found = first_difference(folders[0], folders[2])
    assert found.endswith("differ first at pixel 2, 1; the largest difference is 1 of 255")


def test_a_folder_without_an_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"has no output\.json"):
        first_difference(tmp_path, tmp_path)


def results(at: Path, name: str, chunks: list[Any], *, first: int = 0, output: Any = None) -> Path:
    made = at / name
    write_results(made, output, chunks, first=first, returned=output is not None)
    return made


@pytest.mark.parametrize(
    ("replayed", "where"),
    [
        ({"chunks": ["a", "b", "c"]}, ""),
        ({"chunks": ["c"], "first": 2}, ""),
        ({"chunks": ["a", "x", "c"]}, 'chunk[1] is "b" in'),
        ({"chunks": ["x"], "first": 2}, 'chunk[2] is "c" in'),
        ({"chunks": ["a", "b"]}, "has 3 chunks and"),
        ({"chunks": ["a", "b", "c"], "output": 1}, "only"),
    ],
)
def test_chunks_are_compared_from_the_first_that_both_made(
    tmp_path: Path, replayed: dict[str, Any], where: str
) -> None:
    job = results(tmp_path, "job", ["a", "b", "c"])
    found = first_difference_from_job(job, results(tmp_path, "replay", **replayed))
    assert where in found
    assert bool(found) is bool(where)


def test_a_replay_that_had_no_chunk_left_to_make_is_compared_from_its_save(tmp_path: Path) -> None:
    job = results(tmp_path, "job", ["a", "b"], output=1)
    stoker = Mock(events=Mock(return_value=[]))
    stoker.status.return_value = JobRecord("r", "COMPLETED", output=1)
    download_results(stoker, "e", "r", tmp_path / "replay", covered=2)
    assert not first_difference_from_job(job, tmp_path / "replay")


def test_a_folder_may_have_the_name_that_means_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results(tmp_path, "job", [], output=1)
    results(tmp_path, "out", [], output=2)
    options: Any = Mock(compare="./job", out=Path("out"))
    found = replay._found(Mock(), {}, Run("returned", "", {}), tmp_path, options)
    assert not found.same
    assert "output is 1 in" in found.reason


def test_a_cost_that_the_platform_adds_is_put_aside(tmp_path: Path) -> None:
    job = results(tmp_path, "job", [], output={"n": 1, "cost": 0.5})
    assert not first_difference_from_job(job, results(tmp_path, "same", [], output={"n": 1}))
    found = first_difference_from_job(job, results(tmp_path, "own", [], output={"n": 1, "cost": 0.6}))
    assert found.startswith("output.cost is 0.5 in")


def test_an_output_of_before_is_not_left_beside_a_run_without_one(tmp_path: Path) -> None:
    results(tmp_path, "out", [], output=1)
    assert not (results(tmp_path, "out", ["a"]) / "output.json").exists()


def video(path: Path, *shades: int, loudness: int = 0, crf: str = "18") -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"crf": crf})
        stream.width = stream.height = 64
        sound = container.add_stream("pcm_s16le", rate=8_000, layout="mono")
        for shade in shades:
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), shade, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        samples = np.full((1, 320 * len(shades)), loudness, np.int16)
        heard = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        heard.sample_rate = 8_000
        container.mux(sound.encode(heard))
        container.mux(stream.encode(None))
    return path


def test_videos_are_compared_by_their_frames_and_their_sound(tmp_path: Path) -> None:
    one = video(tmp_path / "one.mkv", 10, 100, 200)
    same = video(tmp_path / "same.mkv", 10, 100, 200)
    same.write_bytes(same.read_bytes() + b"\0" * 8)
    assert videos_differ(one, same) == ""
    found = videos_differ(one, video(tmp_path / "other.mkv", 10, 150, 210))
    assert found is not None
    assert "2 of 3 frames differ, first 1; the largest difference is 5" in found
    found = videos_differ(one, video(tmp_path / "short.mkv", 10, 100))
    assert found is not None
    assert "has more than the 2 frames of the other" in found
    found = videos_differ(one, video(tmp_path / "loud.mkv", 10, 100, 200, loudness=900))
    assert found is not None
    assert "equal frames and another sound" in found
    text = tmp_path / "a.txt"
    text.write_text("no video")
    assert videos_differ(one, text) is None
